"""`weir sql`: every table by its name, as it is now, also after columns came and files were compacted; and messages that help."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from consumers.errors import ConfigError
from consumers.maintenance import Maintenance
from orchestration.cli.sql import app
from orchestration.maintenance.compaction import compact
from orchestration.settings import Settings
from orchestration.sql import query, tables

pytest.importorskip("duckdb", reason="the extra `sql` is not installed")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("WEIR_TABLES", str(tmp_path))
    for number, window in enumerate(["2024-01-01", "2024-01-02", "2024-01-02"]):
        rows = {"carrier": [f"A{number}", "ZZ"], "delay": [number, None], "_window": [window] * 2}
        write_deltalake(tmp_path / "staged" / "flights", pa.table(rows), mode="append", partition_by=["_window"])
    letters = pa.table({"_reason": ["no json"], "_value": [b"\xff{"]})
    write_deltalake(tmp_path / "dead_letters" / "flights", letters)
    types = {
        "amount": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "landed": pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "tags": pa.array([["x"]], pa.list_(pa.string())),
    }
    write_deltalake(tmp_path / "delays", pa.table(types))
    return Settings.load()


def rows(settings: Settings, text: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = query(text, tables(settings)).fetchall()
    return found


def test_every_table_has_its_name(settings: Settings) -> None:
    assert list(tables(settings)) == ["delays", "flights", "flights_dead_letters"]


def test_tables_are_joined_and_counted(settings: Settings) -> None:
    text = "SELECT _window, count(*), sum(delay)::INT FROM flights GROUP BY _window ORDER BY _window"
    assert rows(settings, text) == [("2024-01-01", 2, 0), ("2024-01-02", 4, 3)]
    assert rows(settings, "SELECT count(*) FROM flights f, flights_dead_letters d WHERE f._window = '2024-01-02'") == [(4,)]


def test_times_are_utc_and_decimals_are_exact(settings: Settings) -> None:
    assert rows(settings, "SELECT amount, landed::VARCHAR, tags FROM delays") == [
        (Decimal("1.50"), "2024-01-01 12:00:00+00", ["x"])
    ]


def test_rows_from_before_a_column_came_have_null_in_it_and_compacted_files_are_read_alike(settings: Settings) -> None:
    table = settings.tables / "staged" / "flights"
    more = pa.table({"carrier": ["NEW"], "delay": [9], "_window": ["2024-01-01"], "gate": ["B2"]})
    write_deltalake(table, more, mode="append", schema_mode="merge")
    wanted = [("A0", None), ("NEW", "B2")]
    text = "SELECT carrier, gate FROM flights WHERE _window = '2024-01-01' AND carrier < 'P' ORDER BY carrier"
    assert rows(settings, text) == wanted
    compact(DeltaTable(table), Maintenance(newest_windows=0))
    assert rows(settings, text) == wanted


def test_files_that_are_no_longer_of_the_table_are_not_read(settings: Settings) -> None:
    DeltaTable(settings.tables / "staged" / "flights").delete("carrier = 'ZZ'")
    assert rows(settings, "SELECT count(*) FROM flights") == [(3,)]


def test_a_table_without_rows_has_its_columns(settings: Settings) -> None:
    DeltaTable(settings.tables / "delays").delete()
    assert rows(settings, "SELECT amount FROM delays") == []


def test_a_name_that_is_none_is_answered_with_those_that_are(settings: Settings) -> None:
    with pytest.raises(ConfigError, match=r"There are: delays, flights, flights_dead_letters\."):
        rows(settings, "SELECT * FROM nothing")


@pytest.mark.parametrize(
    ("text", "said"), [("SELECT nope FROM flights", "nope"), ("SELEC 1", "syntax error"), ("SET threads = 1", "no query")]
)
def test_what_cannot_be_run_is_said(settings: Settings, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rows(settings, text)


def test_a_file_that_is_torn_is_said(settings: Settings) -> None:
    file = Path(DeltaTable(settings.tables / "delays").file_uris()[0].removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:10])
    with pytest.raises(ConfigError, match=file.name):
        rows(settings, "SELECT amount FROM delays")


def test_output_for_programs(settings: Settings) -> None:
    text = "SELECT _reason, _value FROM flights_dead_letters"
    [line] = CliRunner().invoke(app, [text, "--format", "json"]).stdout.splitlines()
    assert json.loads(line) == {"_reason": "no json", "_value": "\ufffd{"}
    assert CliRunner().invoke(app, ["SELECT 1 AS a, NULL AS b", "--format", "csv"]).stdout == "a,b\n1,\n"


def test_output_for_people(settings: Settings) -> None:
    shown = CliRunner().invoke(app, ["SELECT carrier FROM flights WHERE delay = 2"]).stdout
    assert "carrier" in shown
    assert "A2" in shown
    assert "flights_dead_letters" in CliRunner().invoke(app, []).stdout
