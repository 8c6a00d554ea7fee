"""`weir ingest`: be a member of a consumer's group from the terminal, exactly as a Dagster run is one."""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from consumers.config import Consumer
from consumers.errors import ConfigError
from consumers.metrics import Metrics
from consumers.staging.log import StagedCommit
from orchestration.settings import Settings

app = typer.Typer(add_completion=False)
_out = Console(highlight=False, soft_wrap=True)
_err = Console(highlight=False, stderr=True, soft_wrap=True)


@app.command()
def ingest(
    name: Annotated[str, typer.Argument(help="The consumer: the name of its folder in defs/consumers.")],
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End at the offsets that the topic holds now.")
    ] = False,
    max_seconds: Annotated[float | None, typer.Option(min=1, help="End after this long.", show_default="never")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /metrics for Prometheus on this machine.", show_default="off")
    ] = None,
    health_file: Annotated[
        Path | None, typer.Option(help="Renew this file while there is progress, for probes.", show_default="off")
    ] = None,
) -> None:
    """Stage a consumer's topic; Ctrl-C finishes the batch in hand and ends, once more ends at once."""
    from consumers.monitoring.shutdown import Shutdown
    from consumers.processing.ingest import ingest as run
    from orchestration.catalog import consumers
    from orchestration.connection import kafka_options

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    settings = Settings.load()
    known = consumers(settings)
    if name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    with (
        Shutdown(_err.print) as shutdown,
        _watched(known[name], metrics_port, health_file) as (metrics, heartbeat),
    ):
        result = run(
            known[name],
            kafka_options(settings),
            member=f"{socket.gethostname()}-{os.getpid()}",
            stop=shutdown.stop,
            abort=shutdown.abort,
            until_caught_up=until_caught_up,
            max_seconds=max_seconds,
            on_commit=_show,
            metrics=metrics,
            heartbeat=heartbeat,
        )
    _out.print(f"{name}: {result.reason}; {result.commits} commits, {result.rows:,} rows, {result.dead_letters:,} dead letters")


@contextmanager
def _watched(
    consumer: Consumer, metrics_port: int | None, health_file: Path | None
) -> Iterator[tuple[Metrics | None, Callable[[], None]]]:
    """Where measurements go, and the heartbeat that keeps the process alive and its file fresh."""
    from consumers.clock import SystemClock
    from consumers.monitoring.health import HealthFile, together
    from consumers.monitoring.prometheus import PrometheusEndpoint, PrometheusMetrics
    from consumers.monitoring.stuck import StuckDetector, stuck_after

    clock = SystemClock()
    limit = stuck_after(consumer.config.batch.max_latency_seconds)
    with ExitStack() as closing:
        metrics: PrometheusMetrics | None = None
        if metrics_port is not None:
            metrics = PrometheusMetrics()
            endpoint = PrometheusEndpoint(metrics, metrics_port)
            closing.callback(endpoint.close)
            _out.print(f"metrics: http://127.0.0.1:{endpoint.port}/metrics")
        heartbeats = [closing.enter_context(StuckDetector(limit, clock)).progress]
        if health_file is not None:
            file = HealthFile(health_file, clock)
            closing.callback(file.close)
            heartbeats.append(file.progress)
        yield metrics, together(*heartbeats)


def _show(commit: StagedCommit) -> None:
    lost = f", LOST {sum(map(len, commit.lost.values())):,} offsets" if commit.lost else ""
    _out.print(
        f"version {commit.version}: {commit.rows:,} rows in {len(commit.windows):,} windows, {commit.dead_letters:,} dead "
        f"letters, lag {commit.lag:,}{lost}"
    )
