"""`weir repair` and the job `repair_<name>`: Dagster's history is made again from the Delta log."""

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from consumers.clock import ManualClock
from consumers.config import Consumer
from orchestration.catalog import consumers
from orchestration.cli.repair import TELL_SECONDS, Progress, app
from orchestration.event_log import instance_of
from orchestration.mirror_events import DATA_VERSION, data_version, staged_key
from orchestration.operations.repair import repair_job
from orchestration.resources.kafka import KafkaResource
from orchestration.settings import Settings
from tests.orchestration.staged_tables import Tables


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of its own, with no Kafka."""
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    for name in ("WEIR_TABLES", "DAGSTER_HOME", "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def staged(home: Path) -> tuple[Consumer, list[str]]:
    """A table of three windows, one touched twice, and the data version that each must have."""
    consumer = consumers(Settings.load())["flights"]
    tables = Tables(consumer)
    tables.acquire(0)
    one = tables.batch(0, 4, {"2013-01-01": [0, 1], "2013-01-02": [2, 3]})
    two = tables.batch(4, 6, {"2013-01-02": [4], "2013-01-03": [5]})
    return consumer, [data_version(one), data_version(two), data_version(two)]


def history(home: Path) -> list[tuple[str | None, str]]:
    """Window and data version of every materialization, by window."""
    with instance_of(home / "dagster") as instance:
        events = [r.asset_materialization for r in instance.fetch_materializations(staged_key("flights"), limit=100).records]
    return sorted((event.partition, (event.tags or {})[DATA_VERSION]) for event in events if event)


def repair(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["flights", *arguments])


def test_after_dagsters_storage_was_deleted_one_command_writes_one_event_for_each_window(
    home: Path, staged: tuple[Consumer, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.mirror.GRACE_SECONDS", 0.0)  # nobody else will write them
    wanted = list(zip(("2013-01-01", "2013-01-02", "2013-01-03"), staged[1], strict=True))
    for _ in range(2):
        said = repair().output
        assert "3: 2013-01-01, 2013-01-02, 2013-01-03: has no event" in said
        assert "3 events were written" in said
        assert history(home) == wanted
        shutil.rmtree(home / "dagster")


def test_while_events_are_written_it_says_how_many_of_how_many(
    staged: tuple[Consumer, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.mirror.GRACE_SECONDS", 0.0)
    monkeypatch.setattr("orchestration.cli.repair.TELL_SECONDS", 0.0)
    said = repair().output
    assert [f"flights: {done} of 3 events written\n" in said for done in (1, 2, 3)] == [True] * 3


def test_it_says_so_every_few_seconds_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    progress = Progress("flights", clock)
    for done in range(1, 9):
        clock.advance(TELL_SECONDS / 4)
        progress.tell(done * 1000, 10_000)
    assert capsys.readouterr().out == "flights: 4,000 of 10,000 events written\nflights: 8,000 of 10,000 events written\n"


def test_a_dry_run_shows_the_same_and_writes_nothing(
    home: Path, staged: tuple[Consumer, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.mirror.GRACE_SECONDS", 0.0)
    done = repair("--dry-run")
    assert done.exit_code == 1
    assert (
        "has no event: its commits are in the Delta log: the event was lost to a crash, or wiped. Would be mended" in done.output
    )
    assert history(home) == []


def test_the_job_shows_every_difference_in_a_table(staged: tuple[Consumer, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.mirror.GRACE_SECONDS", 0.0)
    with dg.DagsterInstance.ephemeral() as instance:
        result = repair_job(staged[0]).execute_in_process(resources={"kafka": KafkaResource()}, instance=instance)
        [output] = [event for event in result.all_node_events if event.event_type_value == "STEP_OUTPUT"]
        metadata: Any = output.step_output_data.metadata
        told = [(r.data["kind"], r.data["mended"]) for r in metadata["differences"].records]
        assert told == [("kafka", False), ("events", True)]
        assert len(instance.fetch_materializations(staged_key("flights"), limit=9).records) == 3
