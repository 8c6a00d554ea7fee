"""The checks hold after rewrites, replays, loads and moves; and they still find what is wrong then."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from consumers.clock import ManualClock, SystemClock
from consumers.config import Consumer
from consumers.processing.replay import Selection, replay
from consumers.staging.log import METADATA_KEY, StagedCommit
from consumers.staging.rewrite import Replacement, Rewriter, Snapshot
from consumers.types import OffsetRange
from orchestration.checks.staged import Finding, no_duplicates, offsets_accounted_for, ranges_join, snapshot, snapshot_at
from tests.consumers.parts import TP, consumer
from tests.consumers.staging.rewriting import GOOD, WINDOW, Ingestion, again, as_rows, replacement, rows, waiting
from tests.orchestration.staged_tables import Tables, consumer_in

EMPTY, WORSE = b"{}", b"no json"


@pytest.fixture
def old(tmp_path: Path) -> Consumer:
    return consumer(tmp_path, schema={"a": {"type": "long", "nullable": False}})


@pytest.fixture
def new(tmp_path: Path) -> Consumer:
    return consumer(tmp_path)


def findings(parts: Consumer) -> dict[str, Finding]:
    shot = snapshot(parts)
    assert shot is not None
    return {"ranges": ranges_join(shot.book), "duplicates": no_duplicates(shot), "offsets": offsets_accounted_for(shot)}


def problems(parts: Consumer) -> list[str]:
    return [problem for finding in findings(parts).values() for problem in finding.problems]


def rewritten(old: Consumer, new: Consumer) -> None:
    """1 is fixed, 3 has become invalid."""
    Rewriter(new, ManualClock()).rewrite(WINDOW, again(new, [GOOD, EMPTY, WORSE, WORSE]))


def replayed(old: Consumer, new: Consumer) -> None:
    replay(new, Selection(), None, ManualClock())


@pytest.mark.parametrize("change", [rewritten, replayed])
def test_a_change_keeps_every_offset_accounted_for(
    old: Consumer, new: Consumer, change: Callable[[Consumer, Consumer], None]
) -> None:
    member = Ingestion(old)
    member.stage(GOOD, EMPTY)
    member.stage(WORSE, GOOD)
    change(old, new)
    member.stage(GOOD, EMPTY)
    assert problems(new) == []
    numbers = findings(new)["offsets"].numbers
    assert numbers["rows"] + numbers["dead_letters"] == 6


def test_dead_letters_that_are_staged_and_not_marked_yet_are_no_duplicates(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(GOOD, EMPTY)
    Rewriter(new, ManualClock()).replay(as_rows(new, [EMPTY], 1), "", "")
    assert problems(new) == []


def test_dead_letters_of_a_rewrite_that_is_not_committed_do_not_count(
    old: Consumer, new: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ingestion(old).stage(GOOD, GOOD)

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Rewriter, "_commit", killed)
        Rewriter(new, ManualClock()).rewrite(WINDOW, again(new, [GOOD, WORSE]))
    assert DeltaTable(new.dead_letters).to_pyarrow_table().num_rows == 1
    assert problems(new) == []


def test_loaded_rows_from_before_the_start_are_counted_and_must_be_unique(old: Consumer, new: Consumer) -> None:
    Ingestion(new, first=5).stage(GOOD, GOOD)
    loaded = as_rows(new, [GOOD, GOOD], 3)
    Rewriter(new, ManualClock()).rewrite(WINDOW, lambda now: replacement(pa.concat_tables([now.rows, loaded]), end=7))
    assert problems(new) == []
    assert findings(new)["offsets"].numbers["rows"] == 4
    write_deltalake(new.staged, loaded.slice(0, 1), mode="append")
    assert any("1 offsets are in two staged rows: 3" in problem for problem in problems(new))


def test_a_row_that_is_lost_after_a_rewrite_is_still_found(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(GOOD, EMPTY, GOOD)
    rewritten_to = again(new, [GOOD, EMPTY, GOOD])
    Rewriter(new, ManualClock()).rewrite(WINDOW, rewritten_to)
    DeltaTable(new.staged).delete("_offset = 2")
    assert any("1 of its 3 offsets have neither row nor dead letter, it says 0: t/0 2" in problem for problem in problems(new))


def test_records_that_a_rewrite_passes_over_are_no_fault_and_those_that_it_loses_are(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(GOOD, GOOD, GOOD)
    Rewriter(new, ManualClock()).rewrite(WINDOW, lambda now: replacement(now.rows.slice(0, 2), end=3))
    assert problems(new) == []
    DeltaTable(new.staged).delete("_offset = 0")
    assert problems(new) != []


def test_a_replay_between_the_two_reads_is_noticed_and_not_taken_for_a_fault(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(GOOD, EMPTY)
    loaded = DeltaTable(new.staged)
    rewritten(old, new)
    shot = snapshot_at(loaded, new)
    assert shot.disturbed
    assert offsets_accounted_for(shot).passed and no_duplicates(shot).passed


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Offsets 0 to 9: seven rows, two dead letters, one offset without a record."""
    tables = Tables(consumer_in(tmp_path))
    tables.acquire(0)
    tables.batch(0, 5, {"2024-01-01": [0, 1, 3]}, dead=[2, 4])
    tables.batch(5, 10, {"2024-01-01": [5], "2024-01-02": [6, 7, 9]})
    return tables


def move_back(tables: Tables, start: int, end: int, removed: int) -> None:
    """Set the position from `end` to `start`, and remove the rows from there on, as a move does."""
    change = StagedCommit(
        "m", "move", "orders", "m", starts={tables.tp: start}, moved={tables.tp: OffsetRange(start, end)}, removed=removed
    )
    properties = CommitProperties(custom_metadata={METADATA_KEY: change.to_json()})
    DeltaTable(tables.consumer.staged).delete(f"_offset >= {start}", commit_properties=properties)


def test_a_position_moved_forward_is_shown_as_skipped_with_who_and_why(tables: Tables) -> None:
    tables.move(20, OffsetRange(10, 20), "somebody", "an outage of the producer")
    tables.batch(20, 22, {"2024-01-03": [20, 21]})
    ranges = findings(tables.consumer)["ranges"]
    assert ranges.warning and ranges.numbers["skipped_by_a_move"] == 10 and ranges.numbers["lost_offsets"] == 0
    assert ranges.text.startswith("orders/0: offsets 10 to 19 were skipped by somebody on 20")
    assert "an outage of the producer" in ranges.text
    assert findings(tables.consumer)["offsets"].passed and findings(tables.consumer)["duplicates"].passed


def test_a_position_moved_back_is_no_fault_once_its_rows_are_replaced(tables: Tables) -> None:
    move_back(tables, 7, 10, removed=2)
    assert problems(tables.consumer) == []
    tables.batch(7, 12, {"2024-01-02": [7, 9, 10, 11]})
    assert problems(tables.consumer) == []


def test_a_row_that_a_move_back_left_is_found_when_it_is_read_again(tables: Tables) -> None:
    tables.move(7, OffsetRange(7, 10), "somebody", "")
    tables.batch(7, 12, {"2024-01-02": [7, 9, 10, 11]})
    assert "2 offsets are in two staged rows: 7, 9" in findings(tables.consumer)["duplicates"].text


def test_a_move_that_does_not_say_what_it_skipped_is_a_gap(tables: Tables) -> None:
    tables.move(20, OffsetRange(10, 15), "somebody", "")
    assert "offsets 10 to 19 are in no range" in findings(tables.consumer)["ranges"].text


def test_ingestion_rewrites_and_replays_at_once_leave_every_record_once(old: Consumer, new: Consumer) -> None:
    member = Ingestion(old, SystemClock())
    member.stage(GOOD, EMPTY, WORSE)

    def ingest() -> None:
        for _ in range(8):
            member.stage(EMPTY, WORSE, GOOD)

    def rewrite() -> None:
        def make(before: Snapshot) -> Replacement:
            end = before.positions[TP]
            made = again(new, ([GOOD, EMPTY, WORSE] + [EMPTY, WORSE, GOOD] * 8)[:end])(before)
            return replace(made, ranges={TP: OffsetRange(0, end)})

        for _ in range(3):
            Rewriter(new, SystemClock()).rewrite(WINDOW, make)

    def try_again() -> None:
        for _ in range(3):
            replay(new, Selection(), None, SystemClock())

    with ThreadPoolExecutor(4) as threads:
        for running in [threads.submit(work) for work in (ingest, rewrite, rewrite, try_again)]:
            running.result()
    try_again()
    valid = [0, 1, *(offset for offset in range(3, member.next) if offset % 3 != 1)]
    assert rows(new) == valid
    assert waiting(new) == [offset for offset in range(member.next) if offset not in valid]
    assert problems(new) == []
