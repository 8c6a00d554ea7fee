"""What a client tells by itself reaches logs and metrics, ends the run where it must, and shows no secret."""

import json
import logging
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import KafkaError

from consumers.brokers.callbacks import ClientCallbacks
from consumers.brokers.options import KafkaOptions, OAuthToken
from consumers.clock import ManualClock
from consumers.errors import BrokerError
from consumers.metrics import Counter, Gauge, Histogram, Tags

NOW = 1_000.0
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


class Taken:
    """The measurements that were taken."""

    def __init__(self) -> None:
        self.counts: list[tuple[Counter, float, dict[str, str]]] = []
        self.gauges: dict[tuple[Gauge, str], float] = {}

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        self.counts.append((name, value, dict(tags or {})))

    def gauge(self, name: Gauge, value: float, tags: Tags | None = None) -> None:
        self.gauges[name, (tags or {}).get("partition", "")] = value

    def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
        raise AssertionError("nothing here is a distribution")


class Tokens:
    """A user's function: a token that is valid for a minute, or an error."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.calls = 0
        self.error: Exception | None = None

    def __call__(self) -> OAuthToken:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return OAuthToken(f"t0ken-{self.calls}", self.clock.time() + 60, "me", {"logicalCluster": "x"})


def callbacks(
    metrics: Taken | None = None, clock: ManualClock | None = None, oauth: Callable[[], OAuthToken] | None = None
) -> ClientCallbacks:
    options = KafkaOptions("localhost:1", {"sasl.password": "hunter2"}, oauth)
    return ClientCallbacks(options, "c", clock or ManualClock(NOW), metrics or Taken(), random.Random(1), patience=30.0)


def statistics(**changes: Any) -> str:
    partitions = {
        "0": {"partition": 0, "fetchq_cnt": 3, "fetchq_size": 300, "consumer_lag": 12},
        "1": {"partition": 1, "fetchq_cnt": 4, "fetchq_size": 400, "consumer_lag": -1},
        "-1": {"partition": -1, "fetchq_cnt": 0, "fetchq_size": 0, "consumer_lag": -1},
    }
    brokers = {"localhost:1/1": {"state": "UP"}, "GroupCoordinator": {"state": "INIT"}}
    return json.dumps({"msg_cnt": 5, "msg_size": 50, "brokers": brokers, "topics": {"t": {"partitions": partitions}}} | changes)


def test_statistics_become_queue_sizes_and_the_lag_of_each_partition_that_has_one() -> None:
    metrics = Taken()
    callbacks(metrics).on_statistics(statistics())
    assert metrics.gauges == {("client_queue_messages", ""): 12, ("client_queue_bytes", ""): 750, ("lag", "0"): 12}


def test_throttling_is_counted_in_seconds() -> None:
    metrics = Taken()
    event: Any = SimpleNamespace(broker_name="b1", broker_id=1, throttle_time=0.25)
    callbacks(metrics).on_throttle(event)
    assert metrics.counts == [("throttled_seconds", 0.25, {"client": "c", "broker": "b1"})]


def test_an_error_that_passes_is_counted_each_time_and_logged_once_until_the_cluster_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Taken()
    told = callbacks(metrics)
    for _ in range(3):
        told.on_error(DOWN)
    told.raise_failure()
    told.recovered()
    told.on_error(DOWN)
    assert [name for name, *_ in metrics.counts] == ["client_errors"] * 4
    assert len(caplog.records) == 2


def test_two_errors_in_turn_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    told = callbacks()
    for error in (DOWN, KafkaError(KafkaError._TRANSPORT)) * 3:
        told.on_error(error)
    assert len(caplog.records) == 2


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_an_error_that_no_waiting_mends_ends_the_run(code: int) -> None:
    told = callbacks()
    told.on_error(KafkaError(code))
    with pytest.raises(BrokerError, match=r"Kafka at localhost:1: .* What is committed is safe"):
        told.raise_failure()


def test_a_fatal_error_ends_the_run() -> None:
    told = callbacks()
    told.on_error(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "fenced", True))
    with pytest.raises(BrokerError, match="fenced"):
        told.raise_failure()


def test_a_cluster_that_is_away_for_too_long_ends_the_run_with_what_the_client_said() -> None:
    clock = ManualClock(NOW)
    told = callbacks(clock=clock)
    away = statistics(brokers={"localhost:1/1": {"state": "CONNECT"}})
    told.on_error(DOWN)
    told.on_statistics(away)
    clock.advance(29)
    told.on_statistics(away)
    told.raise_failure()
    clock.advance(1)
    told.on_statistics(away)
    with pytest.raises(BrokerError, match=r"no broker could be reached for 30 s; the client says: 1/1 brokers are down"):
        told.raise_failure()


def test_a_cluster_that_comes_back_in_time_starts_the_count_anew() -> None:
    clock = ManualClock(NOW)
    told = callbacks(clock=clock)
    for state in ("DOWN", "UP", "DOWN"):
        told.on_statistics(statistics(brokers={"b": {"state": state}}))
        clock.advance(20)
    told.raise_failure()


def test_the_clients_log_is_ours_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = callbacks()
    told.log(logging.ERROR, "%s [%s] %s", "AUTH", "c", "password hunter2 refused")
    told.log(logging.ERROR, "%s [%s] %s", "FAIL", "c", "connection refused, as an error says too")
    told.log(logging.CRITICAL, "%s", "the end")
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.INFO, "AUTH [c] password *** refused"),
        (logging.DEBUG, "FAIL [c] connection refused, as an error says too"),
        (logging.CRITICAL, "the end"),
    ]


def test_no_secret_of_an_error_is_logged_or_raised(caplog: pytest.LogCaptureFixture) -> None:
    told = callbacks()
    told.on_error(KafkaError(KafkaError._TRANSPORT, "hunter2"))
    told.on_error(KafkaError(KafkaError._AUTHENTICATION, "hunter2"))
    with pytest.raises(BrokerError) as raised:
        told.raise_failure()
    assert "hunter2" not in caplog.text + str(raised.value) + told.said()


def test_a_token_is_asked_for_before_the_client_is_made_and_again_when_it_wants_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = Tokens(ManualClock(NOW))
    told = callbacks(oauth=tokens)
    wanted = told.settings()["oauth_cb"]
    assert tokens.calls == 1
    assert wanted(None) == ("t0ken-1", NOW + 60, "me", {"logicalCluster": "x"})
    assert wanted(None)[0] == "t0ken-2"
    assert "valid for 60 s" in caplog.text
    assert "t0ken" not in caplog.text


def test_without_a_first_token_there_is_no_client_and_the_error_says_why_without_the_cause_in_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = Tokens(ManualClock(NOW))
    tokens.error = OSError("could not send secret s3cret")
    told = callbacks(oauth=tokens)
    with pytest.raises(BrokerError, match=r"raised OSError in Tokens.__call__, line \d+") as raised:
        told.settings()
    assert tokens.calls > 1, "an identity provider may be away for a moment"
    assert "trying again" in caplog.text
    assert "s3cret" not in caplog.text + str(raised.value)
    assert raised.value.__suppress_context__


def test_a_token_that_cannot_be_renewed_is_reported_and_ends_the_run_only_once_the_old_one_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, metrics = ManualClock(NOW), Taken()
    tokens = Tokens(clock)
    told = callbacks(metrics, clock, tokens)
    wanted = told.settings()["oauth_cb"]
    wanted(None)
    tokens.error = OSError()
    refused = KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token")
    with pytest.raises(BrokerError):
        wanted(None)
    told.on_error(refused)
    told.raise_failure()
    assert ("client_errors", 1, {"client": "c", "error": "oauth"}) in metrics.counts
    assert "no OAuth token" in caplog.text
    clock.advance(60)
    with pytest.raises(BrokerError):
        wanted(None)
    with pytest.raises(BrokerError, match="no OAuth token"):
        told.raise_failure()


def test_a_real_client_calls_all_of_them() -> None:
    metrics, tokens = Taken(), Tokens(ManualClock(4e9))
    options = KafkaOptions("127.0.0.1:1", {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}, tokens)
    told = ClientCallbacks(options, "c", tokens.clock, metrics, random.Random(1))
    client = ck.Consumer({**options.client(told.settings()), "group.id": "g", "statistics.interval.ms": 50})
    for _ in range(100):
        client.poll(0.05)
        if metrics.gauges and metrics.counts:
            break
    client.close()
    assert tokens.calls == 1
    assert ("client_queue_messages", "") in metrics.gauges
    assert metrics.counts[0][0] == "client_errors"
