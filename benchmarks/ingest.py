"""Ingestion beside a bare consumer, interleaved in one run: `make bench`, or `python -m benchmarks.ingest --help`.

Both read the same topic of the same broker with the same client settings. The bare consumer throws the records away; we decode,
type-check, cut into windows, write Parquet and commit to Delta with the positions. What counts is the ratio: machines differ and
are noisy.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.topic import fill
from orchestration.local.cluster import running_cluster
from orchestration.settings import Settings

_out = Console(highlight=False)


def run(which: str, bootstrap_servers: str, topic: str, records: int) -> dict[str, Any]:
    """One contestant's figures."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.contestant", which, bootstrap_servers, topic, str(records), folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    figures["rate"] = figures["records"] / figures["seconds"]
    return figures


def rates(bootstrap_servers: str, records: int, runs: int) -> None:
    """Records a second, ours against the bare consumer's."""
    size = fill(bootstrap_servers, f"bench-{records}", records)
    pairs = []
    for _ in range(runs):
        pairs.append({which: run(which, bootstrap_servers, f"bench-{records}", records) for which in ("bare", "weir")})
    table = Table(title=f"{records:,} records of {size:.0f} bytes, {runs} runs", title_justify="left")
    for title in ("", "median k/s", "min", "max", "CPU µs a record", "peak MB"):
        table.add_column(title, justify="right")
    for which in ("bare", "weir"):
        each = [pair[which]["rate"] / 1000 for pair in pairs]
        cpu = statistics.median(pair[which]["cpu_seconds"] for pair in pairs) / records * 1e6
        peak = max(pair[which]["peak_mb"] for pair in pairs)
        figures = (statistics.median(each), min(each), max(each), cpu, peak)
        table.add_row(which, *(f"{figure:,.1f}" for figure in figures))
    _out.print(table)
    ratios = sorted(pair["weir"]["rate"] / pair["bare"]["rate"] for pair in pairs)
    _out.print(f"ratio weir / bare: median {statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}")


def memory(bootstrap_servers: str, sizes: tuple[int, int]) -> None:
    """Peak memory for a small and a large backlog."""
    peaks = []
    for records in sizes:
        fill(bootstrap_servers, f"bench-{records}", records)
        figures = run("weir", bootstrap_servers, f"bench-{records}", records)
        peaks.append(figures["peak_mb"])
        _out.print(f"{records:,} records waiting: peak {figures['peak_mb']:.0f} MB, {figures['rate'] / 1000:.0f} k/s")
    _out.print(f"memory at {sizes[1]:,} / at {sizes[0]:,}: {peaks[1] / peaks[0]:.2f}")


def main(
    records: Annotated[int, typer.Option(min=1000)] = 1_000_000,
    runs: Annotated[int, typer.Option(min=1)] = 5,
    backlog: Annotated[int, typer.Option(help="Records of the large backlog; 0 leaves memory out.")] = 8_000_000,
    bootstrap: Annotated[str | None, typer.Option(help="A cluster to use instead of a fresh one.")] = None,
) -> None:
    """Measure, and print tables."""
    if bootstrap is not None:
        _measure(bootstrap, records, runs, backlog)
        return
    with tempfile.TemporaryDirectory() as home:
        default = Settings.load()
        scratch = Settings(home=Path(home), tables=Path(home), cache=default.cache, bootstrap_servers=None)
        with running_cluster(scratch) as servers:
            _measure(servers, records, runs, backlog)


def _measure(bootstrap_servers: str, records: int, runs: int, backlog: int) -> None:
    rates(bootstrap_servers, records, runs)
    if backlog:
        memory(bootstrap_servers, (records, backlog))


if __name__ == "__main__":
    typer.run(main)
