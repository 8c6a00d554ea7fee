"""Dead letters in a table: the whole record, each once, whatever crashes and whoever else writes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from consumers.clock import ManualClock
from consumers.config import InvalidLimits
from consumers.errors import StorageError
from consumers.processing.context import Surroundings
from consumers.processing.strategies.dead_letters import DeadLetters, TableSink
from tests.consumers.parts import DAY_MS, contents
from tests.consumers.processing.strategies.letters import Next, made, message


def table(path: Path, topic_id: str = "id", **more: Any) -> TableSink:
    return TableSink(path, "c", topic_id, ManualClock(DAY_MS / 1000), **more)


def kept(path: Path) -> list[tuple[int, bytes]]:
    rows = contents(path).sort_by("_offset").to_pylist()
    return [(row["_offset"], row["_value"]) for row in rows]


def test_a_table_keeps_the_whole_record_and_the_reason(tmp_path: Path) -> None:
    own = [{"key": "trace", "value": b"\x01"}]
    step = made(table(tmp_path), after := Next())
    step.submit(message(7, [b"\xfe", b"a"], [7], headers=[own, None]))
    assert after.taken == []
    assert step.flush(1)
    assert after.payloads == ["from 7"]
    [row] = contents(tmp_path).to_pylist()
    assert int(row.pop("_timestamp").timestamp() * 1000) == DAY_MS
    assert int(row.pop("_rejected_at").timestamp() * 1000) == DAY_MS
    assert row.pop("_headers") == own
    assert {k: v for k, v in row.items() if k != "_window"} == {
        "_topic": "t",
        "_topic_id": "id",
        "_partition": 0,
        "_offset": 7,
        "_key": b"k0",
        "_value": b"\xfe",
        "_reason": "bad 7",
        **dict.fromkeys(["_commit_id", "_attempts", "_resolved_at", "_resolved_by"]),
    }


def test_letters_of_a_while_share_one_commit(tmp_path: Path) -> None:
    clock = ManualClock(DAY_MS / 1000)
    step = DeadLetters(
        TableSink(tmp_path, "c", "id", clock, seconds=5), InvalidLimits(), after := Next(), around=Surroundings(clock)
    )
    step.submit(message(0, [b"x"], [0]))
    clock.advance(4)
    step.submit(message(1, [b"y"], [1]))
    step.poll()
    assert after.taken == []
    clock.advance(1)
    step.poll()
    assert after.payloads == ["from 0", "from 1"]
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_a_letter_offered_again_is_found_in_rows_that_somebody_marked(tmp_path: Path) -> None:
    for topic_id in ("old", "new"):
        step = made(table(tmp_path, topic_id), Next())
        step.submit(message(0, [b"x"], [0]))
        assert step.flush(1)
    DeltaTable(tmp_path).update({"_attempts": "1"})
    again = made(table(tmp_path, "new"), Next())
    again.submit(message(0, [b"x", b"y"], [0, 1]))
    assert again.flush(1)
    assert kept(tmp_path) == [(0, b"x"), (0, b"x"), (1, b"y")]


def test_a_letter_offered_again_after_a_crash_is_in_the_table_once(tmp_path: Path) -> None:
    first = made(table(tmp_path), Next())
    first.submit(message(0, [b"x", b"a", b"y"], [0, 2]))
    assert first.flush(1)
    again = made(table(tmp_path), after := Next())
    again.submit(message(0, [b"x", b"a", b"y", b"z"], [0, 2, 3]))
    assert again.flush(1)
    assert kept(tmp_path) == [(0, b"x"), (2, b"y"), (3, b"z")]
    assert after.payloads == ["from 0"]


def test_a_letter_that_only_a_changed_program_finds_is_added_behind_those_that_are_there(tmp_path: Path) -> None:
    first = made(table(tmp_path), Next())
    first.submit(message(0, [b"x", b"a", b"y"], [0, 2]))
    assert first.flush(1)
    stricter = made(table(tmp_path), Next())
    stricter.submit(message(0, [b"x", b"a", b"y"], [1, 2]))
    assert stricter.flush(1)
    assert kept(tmp_path) == [(0, b"x"), (1, b"a"), (2, b"y")]


def test_two_writers_of_the_same_letters_leave_each_once(tmp_path: Path) -> None:
    """Both have looked at the table before either writes."""
    zombie, owner = made(table(tmp_path), Next()), made(table(tmp_path), Next())
    for step in (zombie, owner):
        step.submit(message(0, [b"x", b"y"], [0, 1]))
    assert zombie.flush(1)
    assert owner.flush(1)
    assert kept(tmp_path) == [(0, b"x"), (1, b"y")]


def test_a_writer_that_loses_the_race_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loser, winner = table(tmp_path), table(tmp_path)
    step, other = made(loser, after := Next()), made(winner, Next())
    shaped, raced = TableSink._shaped, []

    def late(self: TableSink, letters: pa.Table) -> pa.Table:
        if self is loser and not raced:
            raced.append(True)
            other.submit(message(0, [b"x", b"y"], [0, 1]))
            assert other.flush(1)
        return shaped(self, letters)

    monkeypatch.setattr(TableSink, "_shaped", late)
    step.submit(message(0, [b"x", b"y", b"z"], [0, 1, 2]))
    assert step.flush(1)
    assert raced
    assert kept(tmp_path) == [(0, b"x"), (1, b"y"), (2, b"z")]
    assert after.payloads == ["from 0"]


def test_a_recreated_topic_and_a_log_cut_short_have_letters_of_their_own(tmp_path: Path) -> None:
    for sink, value in ((table(tmp_path), b"x"), (table(tmp_path, "new id"), b"x"), (table(tmp_path), b"other")):
        step = made(sink, Next())
        step.submit(message(0, [value], [0]))
        assert step.flush(1)
    assert sorted(kept(tmp_path)) == [(0, b"other"), (0, b"x"), (0, b"x")]


def test_a_table_that_cannot_be_written_is_fatal_and_the_message_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = made(table(tmp_path), after := Next())
    step.submit(message(0, [b"x"], [0]))

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("consumers.processing.strategies.dead_letters.table.write_file", full)
    with pytest.raises(StorageError, match="no space left"):
        step.flush(1)
    assert after.taken == []
