"""The table of all consumers: the same line in the terminal and in Dagster, with what is known and what is not."""

import json
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from consumers.brokers.memory import MemoryAdmin, MemoryCluster
from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.errors import BrokerError
from orchestration.platform_asset import consumers_table, running
from orchestration.settings import Settings
from orchestration.status import COLUMNS, Running, consumer_status, row
from tests.orchestration.staged_tables import Tables, consumer_in


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return consumer_in(tmp_path, members=3)


@pytest.fixture
def admin() -> MemoryAdmin:
    admin = MemoryAdmin(MemoryCluster(ManualClock(1_700_000_000.0)))
    admin.create_topic("orders", 2)
    return admin


def line(consumer: Consumer, admin: MemoryAdmin | BrokerError, running: Running | None = None) -> dict[str, str | int]:
    return dict(zip(COLUMNS, row(consumer_status(consumer, admin, running)), strict=True))


def test_a_line_shows_what_dagster_and_the_tables_know(consumer: Consumer, admin: MemoryAdmin) -> None:
    tables = Tables(consumer)
    tables.acquire(0)
    tables.batch(0, 3, {"2024-01-01": [0, 1]}, dead=[2])
    known = Running(members=2, wanted=3, on=True, time_lag=90.0, valid_through=1_700_000_000.0)
    shown = line(consumer, admin, known)
    assert {name: shown[name] for name in ("members", "time lag", "complete through", "rows", "dead letters", "state")} == {
        "members": "2/3",
        "time lag": "90 s",
        "complete through": "2023-11-14 22:13:20Z",
        "rows": 2,
        "dead letters": 1,
        "state": "running",
    }


def test_without_dagster_and_tables_a_line_is_there_all_the_same(consumer: Consumer, admin: MemoryAdmin) -> None:
    shown = line(consumer, admin)
    assert (shown["members"], shown["time lag"], shown["complete through"], shown["last commit"]) == ("-", "-", "-", "-")
    assert (shown["lag"], shown["rows"], shown["state"]) == (0, 0, "caught up")


def test_without_kafka_a_line_does_not_pretend_to_know_the_lag(consumer: Consumer) -> None:
    shown = line(consumer, BrokerError("Kafka at x did not answer"))
    assert (shown["lag"], shown["state"]) == (-1, "not known")


def test_resolved_dead_letters_are_not_counted(consumer: Consumer, admin: MemoryAdmin) -> None:
    for resolved in (None, 5):
        stamps = pa.array([resolved], pa.timestamp("us", "UTC"))
        write_deltalake(consumer.dead_letters, pa.table({"_offset": [1], "_resolved_at": stamps}), mode="append")
    assert line(consumer, admin)["dead letters"] == 1


def test_dagsters_table_has_the_same_lines_and_changes_with_them_but_not_with_time(
    consumer: Consumer, admin: MemoryAdmin, instance: dg.DagsterInstance
) -> None:
    known = running(instance, [consumer], ManualClock())["orders"]
    assert known == Running(members=0, wanted=3, on=False)
    status = consumer_status(consumer, admin, known)
    event, state = consumers_table([status])
    table = event.metadata["consumers"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data for record in table.records] == [dict(zip(COLUMNS, row(status), strict=True))]
    later = consumer_status(consumer, admin, Running(members=0, wanted=3, on=False, time_lag=60.0))
    busy = consumer_status(consumer, admin, Running(members=1, wanted=3, on=False))
    assert consumers_table([later])[1] == state != consumers_table([busy])[1]


def test_every_way_to_kafka_honours_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration.connection import kafka_options
    from orchestration.resources.kafka import KafkaResource

    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka:9093")
    monkeypatch.setenv("KAFKA_SECURITY_PROTOCOL", "sasl_ssl")
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", "hush")
    from_command = kafka_options(Settings.load())
    assert from_command == KafkaResource().connection()
    assert from_command.options == {"security.protocol": "sasl_ssl", "sasl.password": "hush"}
    assert "hush" not in repr(Settings.load()) + repr(from_command)
    own = KafkaResource(bootstrap_servers="other:1", security_protocol="ssl").connection()
    assert (own.bootstrap_servers, own.options["security.protocol"]) == ("other:1", "ssl")


def test_the_command_shows_the_table_of_a_project_without_dagster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from typer.testing import CliRunner

    from orchestration.cli.status import app

    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    told = CliRunner().invoke(app, ["weather", "--json"])
    [status] = json.loads(told.stdout)
    assert told.exit_code == 1 and status["name"] == "weather" and status["running"] is None
    assert "127.0.0.1:1" in status["error"] and status["state"] == "not known"
