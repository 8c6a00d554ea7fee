"""Measurements as a line in the log now and then, for those who have nothing else."""

import logging
import threading

from consumers.clock import Clock
from consumers.metrics import Counter, Gauge, Histogram, Tags
from consumers.monitoring.totals import Summary, Totals

log = logging.getLogger(__name__)

_LEAST_SECONDS = 0.1


class LogMetrics:
    """Writes a summary line of every `seconds`, when the next measurement comes. `about` begins the line."""

    def __init__(self, clock: Clock, seconds: float = 60.0, about: str = "weir") -> None:
        self._clock = clock
        self._seconds = max(seconds, _LEAST_SECONDS)
        self._about = about
        self._totals = Totals()
        self._lock = threading.Lock()
        self._since = clock.monotonic()
        self._before = Summary()

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Add."""
        self._totals.count(name, value, tags)
        self._write_when_due()

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Keep the newest."""
        self._totals.gauge(name, value, tags)
        self._write_when_due()

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Add."""
        self._totals.observe(name, value, tags)
        self._write_when_due()

    def _write_when_due(self) -> None:
        now = self._clock.monotonic()
        if now - self._since < self._seconds:
            return
        with self._lock:
            elapsed = now - self._since
            if elapsed < self._seconds:
                return  # another thread was faster
            before, after = self._before, self._totals.summary()
            self._before, self._since = after, now
        log.info("%s: %s", self._about, describe(before, after, elapsed))


def describe(before: Summary, after: Summary, elapsed: float) -> str:
    """What happened between two summaries, `elapsed` seconds apart: rates, then what is not zero, then where things stand."""
    counts = {name: total - before.counters.get(name, 0.0) for name, total in after.counters.items()}
    records, size = counts.pop("records_in", 0.0), counts.pop("bytes_in", 0.0)
    parts = [f"{records:,.0f} records in {elapsed:.0f} s ({records / elapsed:,.0f}/s, {size / elapsed / 1e6:,.1f} MB/s)"]
    parts += [f"{_words(name)} {count:,.10g}" for name, count in sorted(counts.items()) if count]
    for name, found in sorted(after.histograms.items()):
        earlier = before.histograms.get(name)
        number = found.count - (earlier.count if earlier else 0)
        if number:
            mean = (found.total - (earlier.total if earlier else 0.0)) / number
            parts.append(f"{_words(name)} {mean:,.3g} on average")
    parts += [f"{_words(name)} {value:,.10g}" for name, value in sorted(after.gauges.items())]
    return ", ".join(parts)


def _words(name: str) -> str:
    return name.replace("_", " ")
