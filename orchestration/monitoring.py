"""A run's measurements as the metadata that Dagster shows with it."""

import math

from consumers.metrics import Counter, Histogram
from consumers.monitoring.totals import Summary

_ALWAYS: tuple[Counter, ...] = ("records_in", "bytes_in", "dead_letters", "rebalances", "retries", "paused_seconds")
_TIMED: tuple[Histogram, ...] = ("decode_seconds", "flush_seconds", "commit_seconds")


def run_metadata(summary: Summary) -> dict[str, int | float]:
    """Every counter's total, and the seconds and batch sizes in total and at most. What an operator looks for is there as 0."""
    counted = dict.fromkeys(_ALWAYS, 0.0) | dict(summary.counters)
    found: dict[str, int | float] = {name: _plain(value) for name, value in counted.items()}
    for name in _TIMED:
        found[name] = 0.0
    for histogram, values in summary.histograms.items():
        found[histogram] = _plain(values.total)
        found[f"largest_{histogram}"] = _plain(values.largest)
    return found


def _plain(value: float) -> int | float:
    """Counts as integers; seconds to a microsecond."""
    return int(value) if math.isfinite(value) and value == int(value) else round(value, 6)
