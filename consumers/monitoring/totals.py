"""Measurements added up: small however long a run is, and safe to read from another thread."""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from consumers.metrics import Counter, Gauge, Histogram, Tags

_Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many values there were, their sum, and the largest."""

    count: int = 0
    total: float = 0.0
    largest: float = 0.0

    def plus(self, value: float) -> "Distribution":
        """With one more value."""
        return Distribution(self.count + 1, self.total + value, max(self.largest, value))


@dataclass(frozen=True, slots=True)
class Summary:
    """What was measured up to a moment. A gauge with several tags has the sum of its newest values."""

    counters: Mapping[Counter, float] = field(default_factory=dict)
    gauges: Mapping[Gauge, float] = field(default_factory=dict)
    histograms: Mapping[Histogram, Distribution] = field(default_factory=dict)


class Totals:
    """Adds up, over all tags."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[Counter, float] = {}
        self._gauges: dict[Gauge, dict[_Labels, float]] = {}
        self._histograms: dict[Histogram, Distribution] = {}

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Add."""
        with self._lock:
            self._counters[name] = self._counters.get(name, 0.0) + value

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Keep the newest; NaN forgets it."""
        labels = frozenset((tags or {}).items())
        with self._lock:
            values = self._gauges.setdefault(name, {})
            if math.isnan(value):
                values.pop(labels, None)
            else:
                values[labels] = value

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Add."""
        with self._lock:
            self._histograms[name] = self._histograms.get(name, Distribution()).plus(value)

    def summary(self) -> Summary:
        """What there is now."""
        with self._lock:
            gauges = {name: sum(values.values()) for name, values in self._gauges.items() if values}
            return Summary(dict(self._counters), gauges, dict(self._histograms))
