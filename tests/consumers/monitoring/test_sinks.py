"""Where measurements go. Whatever comes, no sink raises."""

import logging
import math
import urllib.request
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import generate_latest

from consumers.clock import ManualClock
from consumers.errors import ConfigError
from consumers.metrics import Metrics, NoMetrics
from consumers.monitoring.fan_out import FanOut
from consumers.monitoring.logs import LogMetrics
from consumers.monitoring.opentelemetry import OpenTelemetryMetrics
from consumers.monitoring.prometheus import PrometheusEndpoint, PrometheusMetrics
from consumers.monitoring.recorded import Recorded
from consumers.monitoring.totals import Distribution, Totals


class Ticking(ManualClock):
    """A second passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


SINKS: dict[str, Callable[[], Metrics]] = {
    "none": NoMetrics,
    "recorded": Recorded,
    "totals": Totals,
    "fan out": FanOut,
    "prometheus": PrometheusMetrics,
    "opentelemetry": lambda: OpenTelemetryMetrics(MeterProvider([InMemoryMetricReader()])),
    "logs": lambda: LogMetrics(Ticking(), 0.0),
}
TAGS: list[dict[str, str] | None] = [None, {}, {"topic": "t"}, {"le": "1", "9-a b": '\n"', "__name__": "x", "": "é"}]


@pytest.mark.parametrize("name", SINKS)
def test_no_sink_raises(name: str) -> None:
    sink = SINKS[name]()
    for value, tags in product([0, 0, -1, 1e300, math.inf, math.nan], TAGS):
        sink.count("records_in", value, tags)
        sink.gauge("lag", value, tags)
        sink.observe("flush_seconds", value, tags)


def measure(sink: Metrics) -> None:
    sink.count("records_in", 3)
    sink.count("bytes_in", 100)
    sink.count("rebalances", tags={"kind": "lost"})
    sink.count("rebalances", tags={"kind": "lost"})
    sink.count("client_errors", tags={"error": "_TRANSPORT", "client": "c"})
    sink.count("client_errors")
    sink.gauge("lag", 5, {"topic": "t", "partition": "0"})
    sink.gauge("lag", 7, {"topic": "t", "partition": "1"})
    sink.gauge("lag", 6, {"topic": "t", "partition": "0"})
    sink.observe("commit_seconds", 0.02)
    sink.observe("commit_seconds", 20)


def test_prometheus_has_names_with_units_last_and_a_label_for_each_tag() -> None:
    sink = PrometheusMetrics()
    measure(sink)
    lines = generate_latest(sink.registry).decode().splitlines()
    assert {
        "weir_records_in_total 3.0",
        "weir_in_bytes_total 100.0",
        'weir_rebalances_total{kind="lost"} 2.0',
        'weir_client_errors_total{client="c",error="_TRANSPORT"} 1.0',
        "weir_client_errors_total 1.0",
        'weir_lag_records{partition="0",topic="t"} 6.0',
        'weir_lag_records{partition="1",topic="t"} 7.0',
        'weir_commit_seconds_bucket{le="0.025"} 1.0',
        'weir_commit_seconds_bucket{le="30.0"} 2.0',
        "weir_commit_seconds_count 2.0",
        "# HELP weir_commit_seconds the commit itself",
        "# TYPE weir_client_errors_total counter",
    } <= set(lines)
    assert sum(line.startswith("# TYPE weir_client_errors_total") for line in lines) == 1
    assert not [line for line in lines if "_created" in line]


def test_a_gauge_that_is_nothing_any_more_disappears() -> None:
    prometheus, totals = PrometheusMetrics(), Totals()
    for sink in (prometheus, totals):
        measure(sink)
        sink.gauge("lag", math.nan, {"topic": "t", "partition": "0"})
    text = generate_latest(prometheus.registry).decode()
    assert 'weir_lag_records{partition="1",topic="t"} 7.0' in text
    assert 'partition="0"' not in text
    assert totals.summary().gauges == {"lag": 7}


def test_prometheus_is_served_on_loopback_until_closed() -> None:
    sink = PrometheusMetrics()
    measure(sink)
    endpoint = PrometheusEndpoint(sink, 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10) as answer:
            assert "weir_records_in_total 3.0" in answer.read().decode()
        with pytest.raises(ConfigError, match=r"Choose another port"):
            PrometheusEndpoint(sink, endpoint.port)
    finally:
        endpoint.close()


def test_opentelemetry_gets_values_units_and_attributes() -> None:
    reader = InMemoryMetricReader()
    measure(OpenTelemetryMetrics(MeterProvider([reader])))
    data: Any = reader.get_metrics_data()
    [scope] = data.resource_metrics[0].scope_metrics
    found = {metric.name: metric for metric in scope.metrics}
    points = {
        name: [(dict(p.attributes), p.value) for p in found[name].data.data_points] for name in ("weir.lag", "weir.rebalances")
    }
    assert points["weir.rebalances"] == [({"kind": "lost"}, 2)]
    assert points["weir.lag"] == [({"topic": "t", "partition": "0"}, 6), ({"topic": "t", "partition": "1"}, 7)]
    [seconds] = found["weir.commit_seconds"].data.data_points
    assert (seconds.count, seconds.sum) == (2, 20.02)
    assert (found["weir.commit_seconds"].unit, found["weir.bytes_in"].unit, found["weir.lag"].unit) == ("s", "By", "{record}")
    assert found["weir.lag"].description.startswith("records behind the high watermark")


def test_the_log_gets_a_line_every_few_seconds_with_what_happened_since(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    sink = LogMetrics(clock, 10, "orders")
    measure(sink)
    assert caplog.messages == []
    clock.advance(10)
    sink.count("commits")
    clock.advance(10)
    sink.count("records_in", 40)
    assert caplog.messages == [
        "orders: 3 records in 10 s (0/s, 0.0 MB/s), client errors 2, commits 1, rebalances 2, commit seconds 10 on average, "
        "lag 13",
        "orders: 40 records in 10 s (4/s, 0.0 MB/s), lag 13",
    ]


def test_totals_add_up_over_all_tags() -> None:
    totals = Totals()
    measure(totals)
    summary = totals.summary()
    assert summary.counters == {"records_in": 3, "bytes_in": 100, "rebalances": 2, "client_errors": 2}
    assert summary.gauges == {"lag": 13}
    assert summary.histograms == {"commit_seconds": Distribution(2, 20.02, 20)}


def test_recorded_answers_by_tags() -> None:
    sink = Recorded()
    measure(sink)
    assert sink.total("client_errors") == 2
    assert sink.total("client_errors", client="c") == 1
    assert sink.last("lag", partition="0") == 6
    assert sink.last("time_lag_seconds") is None
    assert sink.values("commit_seconds") == [0.02, 20]


def test_all_sinks_of_a_fan_out_get_everything() -> None:
    first, second, alone = Recorded(), Recorded(), Recorded()
    measure(FanOut(first, second))
    measure(alone)
    assert first.all == second.all == alone.all
