"""Producing beside a bare `produce` loop, interleaved in one run: `python -m benchmarks.produce --help`.

All are idempotent, with `acks=all` and the same client settings, and have a callback for each delivery. What counts is the ratio.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.producers import CONTESTANTS
from benchmarks.rounds import run, show
from benchmarks.topic import create
from orchestration.local.cluster import running_cluster
from orchestration.settings import Settings


def main(
    records: Annotated[int, typer.Option(min=1000)] = 500_000,
    runs: Annotated[int, typer.Option(min=1)] = 5,
    bootstrap: Annotated[str | None, typer.Option(help="A cluster to use instead of a fresh one.")] = None,
) -> None:
    """Measure, and print a table."""
    if bootstrap is not None:
        _measure(bootstrap, records, runs)
        return
    with tempfile.TemporaryDirectory() as home:
        default = Settings.load()
        scratch = Settings(home=Path(home), tables=Path(home), cache=default.cache, bootstrap_servers=None)
        with running_cluster(scratch) as servers:
            _measure(servers, records, runs)


def _measure(bootstrap_servers: str, records: int, runs: int) -> None:
    create(bootstrap_servers, "bench-produce")
    run("benchmarks.producers", "bare", bootstrap_servers, "bench-produce", 1_000)  # the cluster's first records
    rounds = [
        {which: run("benchmarks.producers", which, bootstrap_servers, "bench-produce", records) for which in CONTESTANTS}
        for _ in range(runs)
    ]
    show(f"{records:,} records", rounds, beside="bare")


if __name__ == "__main__":
    typer.run(main)
