"""The same measurements to several sinks."""

from consumers.metrics import Counter, Gauge, Histogram, Metrics, Tags


class FanOut:
    """Hands every measurement to each of `sinks`, in their order."""

    def __init__(self, *sinks: Metrics) -> None:
        self._sinks = sinks

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Add, everywhere."""
        for sink in self._sinks:
            sink.count(name, value, tags)

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Set, everywhere."""
        for sink in self._sinks:
            sink.gauge(name, value, tags)

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Observe, everywhere."""
        for sink in self._sinks:
            sink.observe(name, value, tags)
