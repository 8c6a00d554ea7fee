"""Every measurement, kept and queryable. For tests: it grows without bound."""

from dataclasses import dataclass

from consumers.metrics import Counter, Gauge, Histogram, Name, Tags


@dataclass(frozen=True, slots=True)
class Measurement:
    """One call."""

    name: Name
    value: float
    tags: Tags


class Recorded:
    """Remembers all measurements in their order."""

    def __init__(self) -> None:
        self.all: list[Measurement] = []

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Remember."""
        self.all.append(Measurement(name, value, dict(tags or {})))

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Remember."""
        self.all.append(Measurement(name, value, dict(tags or {})))

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Remember."""
        self.all.append(Measurement(name, value, dict(tags or {})))

    def total(self, name: Counter, **tags: str) -> float:
        """The sum of a counter, over all measurements that have these tags."""
        return sum(found.value for found in self._matching(name, tags))

    def last(self, name: Gauge, **tags: str) -> float | None:
        """The newest value of a gauge with these tags; None before the first."""
        found = [measurement.value for measurement in self._matching(name, tags)]
        return found[-1] if found else None

    def values(self, name: Histogram, **tags: str) -> list[float]:
        """Every observed value with these tags."""
        return [found.value for found in self._matching(name, tags)]

    def _matching(self, name: Name, tags: Tags) -> list[Measurement]:
        return [found for found in self.all if found.name == name and tags.items() <= found.tags.items()]
