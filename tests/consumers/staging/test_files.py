"""The statistics in the log never hide a row from a reader that skips by them."""

# ruff: noqa: E501 - tables of values read better with one kind a line

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from consumers.clock import ManualClock
from consumers.config import arrow_type
from consumers.staging.delta import commit, open_table
from consumers.staging.files import write_file

VALUES: dict[str, list[Any]] = {
    "string": ["", "a", "é", "😀", "z" * 64, "y" * 65, "\0", "\ud7ff" * 70, "a\U0010ffff" * 40, "\U0010ffff" * 70],
    "boolean": [True, False],
    "byte": [-128, 0, 127],
    "short": [-(2**15), 2**15 - 1],
    "integer": [-(2**31), -1, 2**31 - 1],
    "long": [-(2**63), 2**53 + 1, 2**63 - 1],
    "float": [-0.0, 0.1, 3.4028234663852886e38, -1e-45],
    "double": [-1.7e308, -0.0, 5e-324, 0.1, 2.0**53 + 2],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("0.01"), Decimal("999.99")],
    "decimal(38,10)": [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1")],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2013, 1, 1, 0, 0, 0, 123_456, UTC),
        datetime(2013, 1, 1, 0, 0, 0, 999_001, UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ],
    "binary": [b"", b"\xff", b"\0"],
}  # fmt: skip


def table_of(folder: Path, kind: pa.DataType, values: list[list[Any]]) -> DeltaTable:
    schema = pa.schema([pa.field("v", kind)])
    table = open_table(folder, schema)
    files = [write_file(folder, pa.table({"v": pa.array(v, kind)}), None, ManualClock()) for v in values]
    commit(table, schema, [], [file.action() for file in files], [])
    return table


@pytest.mark.parametrize("name", VALUES)
def test_rows_are_found_by_equality_and_come_back_in_the_declared_type(tmp_path: Path, name: str) -> None:
    kind, values = arrow_type(name), VALUES[name]
    # Every value alone in a file, and all of them together with nulls.
    made = table_of(tmp_path, kind, [*[[v] for v in values], [None, *values, None], [None, None]])
    # By delta-rs's own dataset, which skips files by the statistics of every column.
    table = made.to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(tmp_path), LocalFileSystem()))
    assert table.schema.field("v").type == kind
    for value in values:
        wanted = pa.scalar(value, kind)
        assert table.count_rows(filter=pc.field("v") == wanted) == 2 * sum(v == value for v in values)
        assert table.count_rows(filter=pc.field("v") >= wanted) == 2 * sum(v >= value for v in values)
    assert table.count_rows(filter=pc.field("v").is_null()) == 4


def test_every_bound_in_the_log_includes_its_rows(tmp_path: Path) -> None:
    for name in ("timestamp", "date", "long", "string"):
        folder = tmp_path / name
        for at, value in enumerate(VALUES[name]):
            file = write_file(folder, pa.table({"v": pa.array([value], arrow_type(name))}), None, ManualClock())
            stats = json.loads(file.stats)
            assert (stats["numRecords"], stats["nullCount"]) == (1, {"v": 0})
            if "v" in stats["minValues"]:
                low, high = _read(stats["minValues"]["v"], value), _read(stats["maxValues"]["v"], value)
                assert low <= value <= high, (name, at)


def _read(text: Any, like: Any) -> Any:
    return type(like).fromisoformat(text) if isinstance(like, date) else text


def test_a_file_of_several_row_groups_has_the_bounds_of_all(tmp_path: Path) -> None:
    file = write_file(tmp_path, pa.table({"v": list(range(300_000))}), None, ManualClock(5.0))
    stats = json.loads(file.stats)
    assert (stats["numRecords"], stats["minValues"], stats["maxValues"]) == (300_000, {"v": 0}, {"v": 299_999})
    assert (file.rows, file.modified_ms, file.size) == (300_000, 5000, (tmp_path / file.path).stat().st_size)


def test_a_file_that_the_disk_does_not_take_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_rows: pa.Table, target: Path, **_: object) -> None:
        target.write_bytes(b"PAR1")
        raise RuntimeError("file metadata is only available after writer close")

    monkeypatch.setattr("consumers.staging.files.pq.write_table", full)
    with pytest.raises(OSError, match="could not be written"):
        write_file(tmp_path, pa.table({"a": [1]}), "2026-01-01", ManualClock())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
