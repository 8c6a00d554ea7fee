"""Names that try to leave their place: each is refused with a clear error, or is only a name."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import ValidationError
from rich.console import Console
from sqlalchemy import URL, Column, MetaData, String, Table, create_engine, inspect, select
from typer.testing import CliRunner, Result

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import SystemClock
from consumers.config import Consumer, ConsumerConfig
from consumers.database.writes import append, upsert
from consumers.errors import ConfigError, StorageError
from consumers.processing.replay import Selection, replay
from orchestration.catalog import consumers_of, read_folder
from orchestration.cli import app
from orchestration.cli import sql as sql_command
from orchestration.compute.config import SparkJobConfig
from orchestration.maintenance.vacuum import vacuum
from orchestration.operations.shadow import ShadowConfig
from orchestration.operations.swap import SwapConfig
from orchestration.proposal import connect
from orchestration.settings import Settings
from orchestration.sql import query, tables
from orchestration.testing import run_consumer

LEAVING = [
    *(
        "..",
        "../x",
        "a/../../x",
        "/etc/x",
        "a/b",
        "a\\b",
        "%2e%2e",
        "%2e%2e%2fx",
        "a\0b",
        "\0",
        "a\nb",
        "a b",
        "~",
        "$HOME",
        "{x}",
    ),
    *("x" * 300, "é", "\u202ex", "a'b", 'a"b', "a;b", "--x", "", ".", "CON:", "file:///etc", "s3://x/y"),
]
"""Names that no folder, table or consumer of ours has."""
DEFINITION: dict[str, Any] = {"topic": "t", "schema": {"a": "long"}, "window": "day"}
JOB = {"function": "spark_jobs.airport_delays.airport_delays", "windows": "day"}


def settings(folder: Path) -> Settings:
    return Settings(folder / "home", folder / "tables", folder / "cache", None, folder / "project")


@pytest.mark.parametrize("name", LEAVING)
def test_no_consumer_and_no_table_of_a_split_has_such_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match="small letters, digits and _"):
        consumers_of(name, ConsumerConfig.model_validate(DEFINITION), settings(tmp_path))
    split = {"split": {"column": "a", "tables": {name or "/": [1]}}}
    with pytest.raises(ValidationError, match="small letters, digits and _"):
        consumers_of("c" * 64 if not name else "c", ConsumerConfig.model_validate(DEFINITION | split), settings(tmp_path))


@pytest.mark.parametrize("name", [*LEAVING, "staged", "dead_letters", "x" * 65])
def test_no_job_writes_to_such_a_table(name: str) -> None:
    with pytest.raises(ValidationError, match=r"output\n"):
        SparkJobConfig.model_validate({**JOB, "inputs": {"flights": {"consumer": "flights"}}, "output": name})


@pytest.mark.parametrize("name", LEAVING)
def test_no_job_reads_such_a_table(name: str) -> None:
    for source in ({"consumer": name}, {"table": name}):
        with pytest.raises(ValidationError, match=r"inputs\.flights\.\w+\.(consumer|table)\n"):
            SparkJobConfig.model_validate({**JOB, "inputs": {"flights": source}, "output": "x"})


@pytest.mark.parametrize("name", [each for each in LEAVING if each not in {"..", ".", "--x", "CON:"}] + ["t" * 250, "a:b"])
def test_no_topic_has_such_a_name(name: str) -> None:
    for key, value in (("topic", name), ("topics", [name])):
        with pytest.raises(ValidationError, match="topic"):
            ConsumerConfig.model_validate({**DEFINITION, "topic": None, key: value})


@pytest.mark.parametrize("name", LEAVING)
def test_no_shadow_has_such_a_name(name: str) -> None:
    with pytest.raises(ValidationError, match="id"):
        SwapConfig(id=name, confirm="c")
    if name:
        with pytest.raises(ValidationError, match="id"):
            ShadowConfig(id=name)


@pytest.fixture
def weir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command on an empty project; a Delta table is beside its tables' folder."""
    own = settings(tmp_path)
    monkeypatch.setattr(Settings, "load", staticmethod(lambda: own))
    write_deltalake(tmp_path / "x", pa.table({"a": [1]}))
    own.tables.mkdir()
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    "command", [("new", "consumer", "--plain"), ("try",), ("ingest",), ("check",), ("lineage",), ("repair",), ("status",)]
)
def test_commands_refuse_such_names_in_one_line(weir: Callable[..., Result], tmp_path: Path, command: tuple[str, ...]) -> None:
    before = sorted(tmp_path.rglob("*"))
    for name in LEAVING:
        if name and not name.startswith("-"):
            refused = weir(*command, name)
            assert refused.exit_code == 1 and refused.stderr.startswith("weir: "), f"{name!r}: {refused.output}"
            assert sorted(tmp_path.rglob("*")) == before


def test_a_definition_in_yaml_makes_no_objects(tmp_path: Path) -> None:
    path = tmp_path / "c" / "defs.yaml"
    path.parent.mkdir()
    canary = tmp_path / "canary"
    for value in (
        f"!!python/object/apply:os.mkdir ['{canary}']",
        f"!!python/object/new:os.mkdir ['{canary}']",
        "!!python/name:os.sep",
    ):
        path.write_text(f"type: orchestration.components.KafkaConsumer\nattributes:\n  topic: {value}\n")
        with pytest.raises(ConfigError, match=r"could not determine a constructor.*python"):
            read_folder(tmp_path, settings(tmp_path))
    assert not canary.exists()


HOSTILE_FIELDS = [
    "x\n\n---\ntype: orchestration.components.KafkaConsumer\nattributes: {topic: evil, schema: {a: long}, window: day}\n---\n#",
    *(
        "x\r\n  transform: os.getcwd",
        "x\u2028  group: evil",
        "x\x85  group: evil",
        "{{ env.HOME }}",
        "\x1b]0;evil\x07",
        "\0",
        "[red]x",
    ),
]


@pytest.mark.parametrize("name", HOSTILE_FIELDS)
@pytest.mark.parametrize("value", ["null", "[1]", "1", '"\x7f\\u001b[2J[/x]"'])
def test_a_records_field_names_and_values_write_nothing_into_a_proposed_definition(
    weir: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    cluster = MemoryCluster()
    MemoryAdmin(cluster).create_topic("t")
    producer = MemoryProducer(cluster)
    field = json.dumps(name, ensure_ascii=False)
    for number in range(120):
        producer.send("t", f'{{"id":{number},{field}:{value}}}'.encode())
    producer.close()
    monkeypatch.setattr(connect, "reader", lambda topic, settings: (lambda: MemoryConsumer(cluster, topic), ""))
    made = weir("new", "consumer", "c", "--topic", "t")
    assert made.exit_code == 0, made.output
    assert not {*made.output} & {"\x1b", "\x07", "\0", "\r", "\x85", "\u2028", "\x7f"}
    [found] = read_folder(tmp_path / "project", settings(tmp_path)).values()
    assert (found.name, found.config.topic, found.config.transform, found.group) == ("c", "t", None, "weir-c")
    assert all(column.path in (None, name) for column in found.config.columns.values())
    assert weir("try", "c").exit_code == 0


def test_a_folder_with_such_a_name_is_no_table_for_a_query(tmp_path: Path) -> None:
    own = settings(tmp_path)
    write_deltalake(own.tables / "plain", pa.table({'c"; --': [1]}))
    for name in ('a"; DROP TABLE x; --', "%2e%2e", "a'b"):
        (own.tables / name / "_delta_log").mkdir(parents=True)
        with pytest.raises(ConfigError, match="does not exist"):
            query('SELECT * FROM "{}"'.format(name.replace('"', '""')), tables(own))
    assert query('SELECT "c""; --" FROM plain', tables(own)).fetchall() == [(1,)]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "DROP TABLE plain",
            "SELECT 1; DELETE FROM plain",
            "ATTACH '/tmp/x.db'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "PRAGMA version",
        ),
        *(
            "CALL pragma_version()",
            "SET threads = 1",
            "CREATE TABLE y AS SELECT 1",
            "INSERT INTO plain VALUES (2)",
            "",
            ";",
            "\0",
        ),
    ],
)
def test_only_queries_are_run(tmp_path: Path, text: str) -> None:
    own = settings(tmp_path)
    write_deltalake(own.tables / "plain", pa.table({"a": [1]}))
    with pytest.raises(ConfigError):
        query(text, tables(own))
    assert DeltaTable(own.tables / "plain").version() == 0


def test_a_query_fetches_no_code(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="httpfs"):
        query("SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')", {})
    setting = "SELECT value FROM duckdb_settings() WHERE name = 'autoinstall_known_extensions'"
    assert query(setting, {}).fetchall() == [("false",)]


@pytest.mark.parametrize("value", ["[/x]", "[red]", "\x1b[2J", "\x1b]8;;http://x\x07", "a\rb", "\u202egnp"])
def test_a_value_is_no_order_to_the_terminal(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sql_command, "Console", lambda **_: Console(file=out, force_terminal=True, color_system=None, width=80))
    sql_command._show(["a"], [(value,)])
    shown = out.getvalue()
    assert ascii(value)[1:-1].replace("\\\\", "\\") in shown and not {*shown} & {"\x1b", "\r", "\x07", "\u202e"}


NASTY = ["'; DROP TABLE rows; --", '"', "%s", ":x", "\\", "\0"[:0], "$1", "{}", "é", "a\nb"]


def test_values_and_identifiers_are_only_that_in_a_database(tmp_path: Path) -> None:
    engine = create_engine(URL.create("sqlite", database=str(tmp_path / "data.db")))
    table = Table('rows"; --', MetaData(), Column('key"; DROP TABLE x', String, primary_key=True), Column("%(value)s", String))
    key, value = (column.name for column in table.columns)
    table.create(engine)
    rows = [{key: each, value: each} for each in NASTY]
    with engine.begin() as connection:
        append(table)(connection, [rows])
        upsert(table, [key])(connection, [rows])
        assert sorted(connection.execute(select(table)).all()) == sorted((each, each) for each in NASTY)
    assert inspect(engine).get_table_names() == [table.name]
    with pytest.raises(ValueError, match="has no column"), engine.begin() as connection:
        upsert(table, ["x) DO NOTHING; --"])(connection, [rows])


def test_a_selection_of_dead_letters_is_only_text(tmp_path: Path) -> None:
    config = ConsumerConfig.model_validate(DEFINITION)
    of = Consumer(name="c", config=config, staged=tmp_path / "staged", dead_letters=tmp_path / "dead")
    run_consumer(of, [{"value": b"junk"}], folder=tmp_path)
    for nasty in ("' OR 1=1 --", "%", ".*", '"', "\\"):
        assert replay(of, Selection(reason=nasty), None, SystemClock()).selected == 0
        assert replay(of, Selection(windows=frozenset([nasty])), None, SystemClock()).selected == 0
    assert replay(of, Selection(reason="malformed"), None, SystemClock(), dry_run=True).selected == 1


def test_a_link_out_of_a_table_is_followed_by_no_vacuum(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    write_deltalake(tmp_path / "table", pa.table({"a": [1]}))
    (tmp_path / "table" / "link").symlink_to(outside)
    with pytest.raises(StorageError, match="behind a symbolic link"):
        vacuum(DeltaTable(tmp_path / "table"), 0, SystemClock())
    assert (outside / "precious").exists()


def test_a_table_may_itself_be_behind_a_link(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "disk", pa.table({"a": [1]}))
    (tmp_path / "table").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "orphan.parquet").write_text("x")
    assert vacuum(DeltaTable(tmp_path / "table"), 0, SystemClock()).files == 1
