"""Measurements for OpenTelemetry, through its API. Where they go is set up in the process, with an SDK of the user's choice."""

from typing import get_args

from opentelemetry.metrics import MeterProvider, get_meter_provider

from consumers.metrics import MEANING, Counter, Gauge, Histogram, Name, Tags

_UNITS = {"seconds": "s", "bytes": "By", "records": "{record}", "messages": "{message}", "partitions": "{partition}"}


class OpenTelemetryMetrics:
    """Hands measurements to a meter named `weir`, of `provider` or of the process's own. Names are `weir.<name>`."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        meter = (provider or get_meter_provider()).get_meter("weir")
        self._counters = {name: meter.create_counter(*_described(name)) for name in _names(Counter)}
        self._gauges = {name: meter.create_gauge(*_described(name)) for name in _names(Gauge)}
        self._histograms = {name: meter.create_histogram(*_described(name)) for name in _names(Histogram)}

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Add."""
        self._counters[name].add(value, tags)

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Set. NaN is handed on: the API has no other way to say that there is no value any more."""
        self._gauges[name].set(value, tags)

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Record."""
        self._histograms[name].record(value, tags)


def _names(kind: object) -> tuple[Name, ...]:
    names: tuple[Name, ...] = get_args(kind)
    return names


def _described(name: Name) -> tuple[str, str, str]:
    """Name, unit and description of an instrument."""
    words = name.split("_")
    unit = "{record}" if name == "lag" else next((_UNITS[word] for word in words if word in _UNITS), "1")
    return f"weir.{name}", unit, MEANING[name]
