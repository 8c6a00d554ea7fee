"""Ingestion beside a bare consumer, interleaved in one run: `make bench`, or `python -m benchmarks.ingest --help`.

Both read the same topic of the same broker with the same client settings. The bare consumer throws the records away; we decode,
type-check, cut into windows, write Parquet and commit to Delta with the positions. What counts is the ratio: machines differ and
are noisy.
"""

import tempfile
from typing import Annotated

import typer

from benchmarks import rounds
from benchmarks.cluster import cluster
from benchmarks.rounds import Figures
from benchmarks.topic import fill


def run(which: str, bootstrap_servers: str, topic: str, records: int) -> Figures:
    """One contestant's figures."""
    with tempfile.TemporaryDirectory() as folder:
        return rounds.run("benchmarks.contestant", which, bootstrap_servers, topic, records, folder)


def rates(bootstrap_servers: str, records: int, runs: int) -> None:
    """Records a second, ours against the bare consumer's."""
    size = fill(bootstrap_servers, f"bench-{records}", records)
    pairs = [
        {which: run(which, bootstrap_servers, f"bench-{records}", records) for which in ("bare", "weir")} for _ in range(runs)
    ]
    rounds.show(f"{records:,} records of {size:.0f} bytes", pairs, beside="bare")


def memory(bootstrap_servers: str, sizes: tuple[int, int]) -> None:
    """Peak memory for a small and a large backlog."""
    peaks = []
    for records in sizes:
        fill(bootstrap_servers, f"bench-{records}", records)
        figures = run("weir", bootstrap_servers, f"bench-{records}", records)
        peaks.append(figures["peak_mb"])
        rounds.out.print(f"{records:,} records waiting: peak {figures['peak_mb']:.0f} MB, {figures['rate'] / 1000:.0f} k/s")
    rounds.out.print(f"memory at {sizes[1]:,} / at {sizes[0]:,}: {peaks[1] / peaks[0]:.2f}")


def main(
    records: Annotated[int, typer.Option(min=1000)] = 1_000_000,
    runs: Annotated[int, typer.Option(min=1)] = 5,
    backlog: Annotated[int, typer.Option(help="Records of the large backlog; 0 leaves memory out.")] = 8_000_000,
    bootstrap: Annotated[str | None, typer.Option(help="A cluster to use instead of a fresh one.")] = None,
) -> None:
    """Measure, and print tables."""
    with cluster(bootstrap) as servers:
        _measure(servers, records, runs, backlog)


def _measure(bootstrap_servers: str, records: int, runs: int, backlog: int) -> None:
    rates(bootstrap_servers, records, runs)
    if backlog:
        memory(bootstrap_servers, (records, backlog))


if __name__ == "__main__":
    typer.run(main)
