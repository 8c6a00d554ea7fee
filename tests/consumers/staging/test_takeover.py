"""Taking over what another member left half done: tentative dead letters, and tables that are not equally old."""

import shutil
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from consumers.clock import ManualClock
from consumers.errors import StorageError
from consumers.processing.decoding import decoder_for
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.buffer import shape
from consumers.processing.strategies.stage.owner import Owner
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange
from tests.consumers.parts import TP, consumer, contents, message


def leave_tentative(folder: Path, owner: Owner, count: int) -> None:
    """A member takes over from offset 0, writes `count` dead letters, and dies before its staged commit."""
    parts = consumer(folder)
    owner.acquire(owner.positions([TP]), {TP: Start(0)}, "id")
    rejects = shape(message([b"bad"] * count), decoder_for(parts.config), parts.config.window, {TP: "id"}, 0).rejects
    assert rejects is not None
    DeadLetterTable(parts, ManualClock()).append(rejects, {TP: owner.holds[TP].epoch})
    assert contents(parts.dead_letters).num_rows == count


def test_tentative_dead_letters_go_also_where_retention_has_taken_their_records_since(tmp_path: Path) -> None:
    owner = Owner(consumer(tmp_path), "m", ManualClock())
    leave_tentative(tmp_path, owner, 3)
    owner.acquire(owner.positions([TP]), {TP: Start(10, lost=OffsetRange(0, 10))}, "id")
    assert contents(tmp_path / "dead").num_rows == 0


def test_tentative_dead_letters_go_also_where_the_log_was_cut_short_since(tmp_path: Path) -> None:
    owner = Owner(consumer(tmp_path), "m", ManualClock())
    leave_tentative(tmp_path, owner, 3)
    owner.acquire(owner.positions([TP]), {TP: Start(0, cut=True)}, "id")
    assert owner.holds[TP].label == f"id~{owner.holds[TP].epoch}"
    assert contents(tmp_path / "dead").num_rows == 0


def test_a_staged_table_restored_to_an_older_state_than_its_dead_letters_is_taken_over_at_once(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    StagedTable(parts, ManualClock())
    shutil.copytree(parts.staged, tmp_path / "backup")
    owner = Owner(parts, "m", ManualClock())
    for _ in range(4):
        owner.acquire(owner.positions([TP]), {TP: Start(0)}, "id")
    shutil.rmtree(parts.staged)
    shutil.copytree(tmp_path / "backup", parts.staged)
    restored = Owner(parts, "n", ManualClock())
    restored.acquire(restored.positions([TP]), {TP: Start(0)}, "id")
    assert restored.holds[TP].epoch == 5


@pytest.mark.parametrize("table", [StagedTable, DeadLetterTable])
@pytest.mark.parametrize("failure", [OSError("disk full"), DeltaError("no log")])
def test_a_storage_that_fails_during_a_takeover_is_told_to_the_operator(
    failure: Exception, table: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise failure

    owner = Owner(consumer(tmp_path), "m", ManualClock())
    seen = owner.positions([TP])
    monkeypatch.setattr(table, "acquire", fail)
    with pytest.raises(StorageError, match=rf"consumer c could not take partitions over .*{failure}\. Nothing is lost"):
        owner.acquire(seen, {TP: Start(0)}, "id")
    assert owner.holds == {}
