"""What an operator sees of a run's measurements, and of a member that hangs."""

import logging
import threading
from pathlib import Path

import dagster as dg
import pytest

from consumers.clock import SystemClock
from consumers.errors import FatalError
from consumers.monitoring.stuck import StuckDetector
from consumers.monitoring.totals import Totals
from consumers.processing.ingest import IngestResult
from orchestration.catalog import ingestion_op_name
from orchestration.cli import ingest as cli
from orchestration.components import consumer_job
from orchestration.components.consumer_member import run_member
from orchestration.monitoring import run_metadata
from orchestration.resources.kafka import KafkaResource
from tests.consumers.parts import consumer


def test_a_runs_metadata_has_totals_and_what_is_looked_for_also_as_zero() -> None:
    totals = Totals()
    totals.count("records_in", 12)
    totals.count("paused_seconds", 0.1234567)
    totals.count("client_errors", tags={"error": "_TRANSPORT"})
    totals.gauge("lag", 5)
    for seconds in (0.5, 1.25):
        totals.observe("commit_seconds", seconds)
    found = run_metadata(totals.summary())
    assert found == {
        "records_in": 12,
        "bytes_in": 0,
        "dead_letters": 0,
        "rebalances": 0,
        "retries": 0,
        "paused_seconds": 0.123457,
        "client_errors": 1,
        "decode_seconds": 0,
        "flush_seconds": 0,
        "commit_seconds": 1.75,
        "largest_commit_seconds": 1.25,
    }
    assert isinstance(found["records_in"], int)


def test_a_runs_metadata_comes_from_what_the_member_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object, metrics: Totals, heartbeat: object, **__: object) -> IngestResult:
        assert callable(heartbeat)
        heartbeat()
        metrics.count("records_in", 7)
        metrics.observe("flush_seconds", 0.5)
        return IngestResult(2, 6, 1, "caught up")

    monkeypatch.setattr(consumer_job, "ingest", measured)
    job = consumer_job.ingestion_job(consumer(tmp_path))
    with dg.instance_for_test() as instance:
        result = job.execute_in_process(instance=instance, resources={"kafka": KafkaResource(bootstrap_servers="localhost:1")})
        [event] = [e for e in result.events_for_node(ingestion_op_name("c")) if e.is_successful_output]
    metadata = event.step_output_data.metadata
    found = {key: metadata[key].value for key in ("records_in", "rows", "dead_letters", "flush_seconds", "rebalances", "reason")}
    assert found == {
        "records_in": 7,
        "rows": 6,
        "dead_letters": 1,
        "flush_seconds": 0.5,
        "rebalances": 0,
        "reason": "caught up",
    }


def test_a_member_that_hangs_ends_the_run_with_its_stack_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    let_go, stuck = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        with StuckDetector(0.05, SystemClock(), stuck.set):
            let_go.wait(60)

    try:
        with pytest.raises(FatalError, match="made no progress"):
            run_member(work, lambda: None, SystemClock(), patience=0.0, stuck=stuck)
    finally:
        let_go.set()
    [message] = [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "thread member" in message


def test_the_command_line_serves_metrics_and_keeps_a_health_file_while_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    health = tmp_path / "health"
    with cli._watched(consumer(tmp_path), 0, health) as (metrics, heartbeat):
        heartbeat()
        assert health.exists()
        assert metrics is not None
    assert not health.exists()
    with cli._watched(consumer(tmp_path), None, None) as (metrics, heartbeat):
        heartbeat()
        assert metrics is None
