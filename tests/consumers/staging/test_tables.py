"""Compare-and-set, epochs, and what stands in the log, on real Delta tables."""

# ruff: noqa: E501 - tables of values read better with one kind a line

from dataclasses import replace
from pathlib import Path

import pytest

from consumers.clock import ManualClock
from consumers.errors import OwnershipLost, StorageError
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.owner import Owner
from consumers.staging.log import StagedCommit, Timings, WindowChange, commits
from consumers.staging.positions import committed_positions
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange, Position, TopicPartition
from tests.consumers.parts import TP, consumer

OTHER = TopicPartition("t", 1)


def step(start: int, end: int) -> StagedCommit:
    return StagedCommit("x", "batch", "c", "m", ranges={TP: OffsetRange(start, end)})


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    made = Owner(consumer(tmp_path), "m", ManualClock())
    made.acquire(made.positions([TP, OTHER]), {TP: Start(0), OTHER: Start(7)}, "id")
    return made


@pytest.mark.parametrize(("start", "epoch"), [(1, 1), (0, 0), (0, 2)])
def test_a_commit_from_another_position_or_epoch_is_refused(owner: Owner, tmp_path: Path, start: int, epoch: int) -> None:
    with pytest.raises(OwnershipLost, match="the table stands at offset 0 in epoch 1"):
        StagedTable(consumer(tmp_path), ManualClock()).commit([], step(start, 9), {TP: epoch})
    assert committed_positions(tmp_path / "staged", "c", "t", 2) == {TP: 0, OTHER: 7}


def test_a_takeover_of_what_moved_since_it_was_seen_is_refused(owner: Owner, tmp_path: Path) -> None:
    seen = owner.positions([TP])
    StagedTable(consumer(tmp_path), ManualClock()).commit([], step(0, 3), {TP: 1})
    with pytest.raises(OwnershipLost):
        owner.acquire(seen, {TP: Start(0)}, "id")
    assert owner.positions([TP]) == {TP: Position(3, 1)}


def test_the_log_says_what_was_committed(owner: Owner, tmp_path: Path) -> None:
    wanted = replace(
        step(0, 3), rows=2, dead_letters=1, high={TP: 5}, windows={"2013-01-01": WindowChange(2, 10, 1)}, timings=Timings(1, 2, 3),
        topic_ids={"t": "id"}, lost={OTHER: OffsetRange(1, 1)},
    )  # fmt: skip
    done = StagedTable(consumer(tmp_path), ManualClock()).commit([], wanted, {TP: 1})
    takeover, found = commits(tmp_path / "staged")
    assert replace(found, version=-1, committed_at_ms=0) == wanted
    assert (takeover.kind, takeover.starts, found.version) == ("acquire", {TP: 0, OTHER: 7}, done.version)
    assert (found.lag, found.offsets) == (2, 3)
    assert commits(tmp_path / "staged", after=takeover.version) == [found]
    assert commits(tmp_path / "none") == []


def test_a_table_with_other_columns_is_refused_by_name(owner: Owner, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"a \(int64 in the table, string by the definition\)") as refused:
        StagedTable(consumer(tmp_path, schema={"a": "string"}), ManualClock())
    assert "launch the job shadow_c, then swap_c" in str(refused.value)


def test_every_type_can_be_declared_and_opened_again(tmp_path: Path) -> None:
    kinds = ["string", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal(9,2)", "date", "timestamp"]
    parts = consumer(tmp_path, schema={f"c{i}": kind for i, kind in enumerate(kinds)})
    assert StagedTable(parts, ManualClock()).schema == StagedTable(parts, ManualClock()).schema
