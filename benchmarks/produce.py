"""Producing beside a bare `produce` loop, interleaved in one run: `python -m benchmarks.produce --help`.

All are idempotent, with `acks=all` and the same client settings, and have a callback for each delivery. What counts is the ratio.
"""

from typing import Annotated

import typer

from benchmarks.cluster import cluster
from benchmarks.producers import CONTESTANTS
from benchmarks.rounds import run, show
from benchmarks.topic import create


def main(
    records: Annotated[int, typer.Option(min=1000)] = 500_000,
    runs: Annotated[int, typer.Option(min=1)] = 5,
    bootstrap: Annotated[str | None, typer.Option(help="A cluster to use instead of a fresh one.")] = None,
) -> None:
    """Measure, and print a table."""
    with cluster(bootstrap) as servers:
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
