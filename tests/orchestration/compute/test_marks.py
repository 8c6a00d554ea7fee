"""Application transactions, read all at once."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from orchestration.compute.marks import transactions
from orchestration.compute.plan import plan
from tests.orchestration.compute.bench import make, run


def commit(table: Path, **versions: int) -> None:
    found = [Transaction(name, version) for name, version in versions.items()]
    properties = CommitProperties(app_transactions=found)
    write_deltalake(table, pa.table({"x": [1]}), mode="append", commit_properties=properties)


@pytest.mark.parametrize("checkpoint_after", [None, 0, 1, 2])
def test_the_newest_version_of_every_application_is_found_with_and_without_a_checkpoint(
    tmp_path: Path, checkpoint_after: int | None
) -> None:
    for at, versions in enumerate(({"a": 1, "b": 7}, {"a": 2}, {"c": 3})):
        commit(tmp_path / "t", **versions)
        if at == checkpoint_after:
            DeltaTable(tmp_path / "t").create_checkpoint()
    table = DeltaTable(tmp_path / "t")
    assert transactions(table) == {"a": 2, "b": 7, "c": 3}
    assert all(table.transaction_version(name) == version for name, version in transactions(table).items())


def test_the_checksum_that_spark_leaves_beside_a_checkpoint_is_passed_over(tmp_path: Path) -> None:
    commit(tmp_path / "t", a=1)
    DeltaTable(tmp_path / "t").create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f".{0:020d}.checkpoint.parquet.crc").write_bytes(b"crc")
    assert transactions(DeltaTable(tmp_path / "t")) == {"a": 1}


def test_a_snapshot_does_not_know_what_came_later(tmp_path: Path) -> None:
    commit(tmp_path / "t", a=1)
    commit(tmp_path / "t", a=2)
    DeltaTable(tmp_path / "t").create_checkpoint()
    assert transactions(DeltaTable(tmp_path / "t", version=0)) == {"a": 1}


def test_a_plan_of_many_windows_asks_for_transactions_no_oftener_than_one_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, staged = make(tmp_path, "window")
    staged.batch(d1=[1])
    run(job)
    asked: list[str] = []
    real = DeltaTable.transaction_version
    monkeypatch.setattr(DeltaTable, "transaction_version", lambda self, name: (asked.append(name), real(self, name))[1])
    for count in (1, 50):
        staged.batch(**{f"w{number}": [number] for number in range(count)})
        asked.clear()
        assert len(plan(job).stale) == count
        assert len(asked) < 5
