"""Contestants in processes of their own, one after the other, several rounds: figures as JSON, medians as a table."""

import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from consumers.clock import SystemClock

out = Console(highlight=False, width=140)

Figures = dict[str, Any]


class Stopwatch:
    """Wall and CPU time of this process."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.start()

    def start(self) -> None:
        """From now on."""
        self._began, self._cpu = self._clock.monotonic(), _cpu_seconds()

    def stop(self) -> None:
        """Until now; a later stop counts instead."""
        self.seconds, self.cpu_seconds = self._clock.monotonic() - self._began, _cpu_seconds() - self._cpu

    def print(self, records: int) -> None:
        """In a contestant: its line of JSON, with the most memory that the process had."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"records": records, "seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "peak_mb": peak}))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(module: str, *arguments: object) -> Figures:
    """One contestant's figures."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[2:])} failed:\n{done.stderr}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    figures["rate"] = figures["records"] / figures["seconds"]
    return figures


def show(title: str, rounds: Sequence[dict[str, Figures]], beside: str) -> None:
    """Medians of each contestant, and the ratio to `beside` in the same round."""
    table = Table(title=f"{title}, {len(rounds)} rounds", title_justify="left")
    for column in ("", "median k/s", "min", "max", "CPU µs a record", "peak MB", f"ratio to {beside}", "min", "max"):
        table.add_column(column, justify="right")
    for which in rounds[0]:
        each = [one[which]["rate"] / 1000 for one in rounds]
        cpu = statistics.median(one[which]["cpu_seconds"] / one[which]["records"] for one in rounds) * 1e6
        peak = max(one[which]["peak_mb"] for one in rounds)
        ratios = [one[which]["rate"] / one[beside]["rate"] for one in rounds]
        table.add_row(
            which,
            *(f"{figure:,.1f}" for figure in (statistics.median(each), min(each), max(each), cpu, peak)),
            *(f"{figure:,.2f}" for figure in (statistics.median(ratios), min(ratios), max(ratios))),
        )
    out.print(table)
