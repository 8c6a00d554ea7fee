"""Measurements for Prometheus, through its own library: `weir_*`, a label for each tag, in a registry of their own."""

import math
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client import Counter as PrometheusCounter
from prometheus_client import Gauge as PrometheusGauge
from prometheus_client import Histogram as PrometheusHistogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from consumers.errors import ConfigError
from consumers.metrics import MEANING, Counter, Gauge, Histogram, Name, Tags

# Prometheus wants the unit last; the library adds `_total` to counters.
_UNIT_LAST: dict[Name, str] = {"bytes_in": "in_bytes", "lag": "lag_records"}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_BYTES = tuple(float(4**power) for power in range(5, 16))
_RECORDS = tuple(float(10**power) for power in range(7))
_RESERVED = ("le", "quantile")

_Labels = tuple[str, ...]


class PrometheusMetrics(Collector):
    """Keeps measurements for scraping from `registry`.

    The same name may come with different tags, which the library's own metrics do not allow; so each set of tags has one, and
    they are shown as one family.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._counters: dict[tuple[Counter, _Labels], PrometheusCounter] = {}
        self._gauges: dict[tuple[Gauge, _Labels], PrometheusGauge] = {}
        self._histograms: dict[tuple[Histogram, _Labels], PrometheusHistogram] = {}
        self.registry.register(self)

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        """Add; a counter never goes down, so anything below 0 is left out."""
        labels = _labels(tags)
        key = (name, tuple(labels))
        with self._lock:
            if key not in self._counters:
                self._counters[key] = PrometheusCounter(exposed_name(name), MEANING[name], key[1], registry=None)
        if value >= 0:
            (self._counters[key].labels(**labels) if labels else self._counters[key]).inc(value)

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        """Set; NaN takes the value with these tags away."""
        labels = _labels(tags)
        key = (name, tuple(labels))
        with self._lock:
            if key not in self._gauges:
                self._gauges[key] = PrometheusGauge(exposed_name(name), MEANING[name], key[1], registry=None)
        if labels and math.isnan(value):
            with suppress(KeyError):
                self._gauges[key].remove(*labels.values())
        else:
            (self._gauges[key].labels(**labels) if labels else self._gauges[key]).set(value)

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        """Count into a bucket."""
        labels = _labels(tags)
        key = (name, tuple(labels))
        with self._lock:
            if key not in self._histograms:
                made = PrometheusHistogram(exposed_name(name), MEANING[name], key[1], registry=None, buckets=_buckets(name))
                self._histograms[key] = made
        (self._histograms[key].labels(**labels) if labels else self._histograms[key]).observe(value)

    def collect(self) -> Iterator[Metric]:
        """One family for each name; called by the registry."""
        with self._lock:
            parts = [*self._counters.values(), *self._gauges.values(), *self._histograms.values()]
        families: dict[str, Metric] = {}
        for part in parts:
            for family in part.collect():
                shown = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                # When a counter began is in no name of ours, and doubles what is scraped.
                shown.samples += [sample for sample in family.samples if not sample.name.endswith("_created")]
        yield from families.values()


class PrometheusEndpoint:
    """`/metrics` over HTTP, on this machine only unless another `host` is named. Serves until closed."""

    def __init__(self, metrics: PrometheusMetrics, port: int, host: str = "127.0.0.1") -> None:
        """With port 0 the system chooses. Raises `ConfigError` when the port is taken."""
        try:
            server, thread = start_http_server(port, host, metrics.registry)
        except OSError as error:
            raise ConfigError(f"metrics cannot be served on {host}:{port}: {error}. Choose another port.") from error
        self._server: WSGIServer = server
        self._thread: threading.Thread = thread

    @property
    def port(self) -> int:
        """The port that is served."""
        return self._server.server_port

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def exposed_name(name: Name) -> str:
    """The name in Prometheus, without the `_total` that counters end in."""
    return f"weir_{_UNIT_LAST.get(name, name)}"


def _labels(tags: Tags | None) -> dict[str, str]:
    """Labels from tags, in order of their names; what cannot be a label's name is changed until it can."""
    if not tags:
        return {}
    return {_label(name): value for name, value in sorted(tags.items())}


def _label(tag: str) -> str:
    name = re.sub(r"\W", "_", tag, flags=re.ASCII)
    return f"tag_{name}" if name in _RESERVED or not name or name[0].isdigit() or name.startswith("__") else name


def _buckets(name: Histogram) -> tuple[float, ...]:
    if name.endswith("_seconds"):
        return _SECONDS
    return _BYTES if name.endswith("_bytes") else _RECORDS
