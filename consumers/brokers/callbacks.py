"""What a Kafka client tells by itself: statistics, errors, its log, throttling, and that it wants a new token.

All of it becomes our logging and `Metrics`; what ends a run is kept for whoever polls. It knows nothing of records. Everything is
called in the thread that polls the client, but for the token: that is asked for in a thread of the client.
"""

import json
import logging
import random
from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import KafkaError

from consumers.brokers.failures import WHEN_AWAY, in_words, refusal
from consumers.brokers.options import KafkaOptions, OAuthToken
from consumers.brokers.retry import Backoff, Retry
from consumers.clock import Clock
from consumers.errors import BrokerError
from consumers.metrics import Metrics

log = logging.getLogger(__name__)
_client_log = logging.getLogger("consumers.brokers.librdkafka")

_PATIENCE_SECONDS = 300.0
_LOG_LEVEL = 6
_REFUSING = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_ASSIGNOR,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.UNRELEASED_INSTANCE_ID,
)
"""Errors that no waiting mends."""


class Throttled(Protocol):
    """The client's `ThrottleEvent`; `throttle_time` is in seconds."""

    broker_name: str
    throttle_time: float


class ClientCallbacks:
    """The callbacks of one client. `settings` go into its configuration."""

    def __init__(
        self,
        options: KafkaOptions,
        client: str,
        clock: Clock,
        metrics: Metrics,
        chance: random.Random,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        """`patience` is how many seconds no broker may be reachable before the run ends."""
        self._options = options
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._patience = patience
        self._tags = {"client": client}
        self._reported: set[int] = set()
        self._last: KafkaError | None = None
        self._failure: BrokerError | None = None
        self._alone_since: float | None = None
        self._tokens = _Tokens(options, clock, Retry(clock, chance, metrics, Backoff(limit=20.0))) if options.oauth else None

    def settings(self) -> dict[str, Any]:
        """What to put into the client's configuration. Raises `BrokerError` when there is no first token to be had."""
        found = {
            "error_cb": self.on_error,
            "stats_cb": self.on_statistics,
            "throttle_cb": self.on_throttle,
            "logger": self,
            "log_level": _LOG_LEVEL,
            "statistics.interval.ms": 10_000,
        }
        if self._tokens is not None:
            self._tokens.first()
            found["oauth_cb"] = self.on_token_wanted
        return found

    def raise_failure(self) -> None:
        """Raise what ends the run, if anything has happened that does."""
        if self._failure is not None:
            raise self._failure

    def recovered(self) -> None:
        """The cluster has answered: the next error is news."""
        self._reported.clear()
        self._last = None

    def said(self) -> str:
        """The client's last complaint since the cluster answered, in words to append to an error; may be empty."""
        return f"; the client says: {self._options.without_secrets(in_words(self._last))}" if self._last is not None else ""

    def on_error(self, error: KafkaError) -> None:
        """The client could not do something. Most of it passes, and the client goes on trying by itself."""
        self._metrics.count("client_errors", tags={**self._tags, "error": error.name()})
        self._last = error
        renewing = self._tokens is not None and self._tokens.valid() and error.code() == KafkaError._AUTHENTICATION
        if error.fatal() or (error.code() in _REFUSING and not renewing):
            self._failure = self._failure or self._refused(error)
        elif error.code() not in self._reported:
            # The client repeats itself many times a second while a broker is away; once is enough until it has recovered.
            self._reported.add(error.code())
            log.warning("Kafka client %s: %s; it goes on trying", self._client, self._options.without_secrets(in_words(error)))

    def on_statistics(self, text: str) -> None:
        """Queue sizes and lag, and whether any broker is connected."""
        found = json.loads(text)
        partitions = [p for topic in found.get("topics", {}).values() for p in _partitions(topic)]
        self._metrics.gauge("client_queue_messages", found.get("msg_cnt", 0) + _sum(partitions, "fetchq_cnt"), self._tags)
        self._metrics.gauge("client_queue_bytes", found.get("msg_size", 0) + _sum(partitions, "fetchq_size"), self._tags)
        for name, topic in found.get("topics", {}).items():
            for partition in _partitions(topic):
                if (lag := partition.get("consumer_lag", -1)) >= 0:
                    self._metrics.gauge("lag", lag, {"topic": name, "partition": str(partition["partition"])})
        self._look_for_brokers(found.get("brokers", {}))

    def on_throttle(self, event: Throttled) -> None:
        """A broker has slowed the client down, by a quota."""
        self._metrics.count("throttled_seconds", event.throttle_time, {**self._tags, "broker": event.broker_name})
        log.info("Kafka client %s: %s throttled it for %.3f s", self._client, event.broker_name, event.throttle_time)

    def on_token_wanted(self, _config: str | None) -> tuple[str, float, str, dict[str, str]]:
        """A new token, for the client. What the user's function raises is logged, and told to the client, which asks again."""
        assert self._tokens is not None
        try:
            return self._tokens.next()
        except BrokerError as error:
            self._metrics.count("client_errors", tags={**self._tags, "error": "oauth"})
            if not self._tokens.valid():
                self._failure = self._failure or error
            log.error("Kafka client %s: %s", self._client, error)
            raise

    def log(self, level: int, form: str, *values: object) -> None:
        """A line of the client's own log. What matters of it comes as an error too, so it is no more than information here.

        Connections that fail do so many times a second while a broker is away, and each is an error as well: those are detail.
        """
        most = logging.DEBUG if values[:1] == ("FAIL",) else logging.INFO
        ours = level if level >= logging.CRITICAL else min(level, most)
        _client_log.log(ours, "%s", self._options.without_secrets(form % values))

    def _refused(self, error: KafkaError) -> BrokerError:
        found = refusal(f"Kafka at {self._options.bootstrap_servers}", error)
        return BrokerError(self._options.without_secrets(str(found)))

    def _look_for_brokers(self, brokers: Mapping[str, Mapping[str, Any]]) -> None:
        if any(broker.get("state") == "UP" for broker in brokers.values()):
            self._alone_since = None
            return
        now = self._clock.monotonic()
        self._alone_since = now if self._alone_since is None else self._alone_since
        if now - self._alone_since >= self._patience:
            self._failure = self._failure or BrokerError(
                f"Kafka at {self._options.bootstrap_servers}: no broker could be reached for {self._patience:.0f} s"
                f"{self.said()}. What is committed is safe. {WHEN_AWAY}."
            )


class _Tokens:
    """OAuth tokens from the user's function."""

    def __init__(self, options: KafkaOptions, clock: Clock, retry: Retry) -> None:
        self._options = options
        self._clock = clock
        self._retry = retry
        self._waiting: OAuthToken | None = None
        self._expires = 0.0

    def first(self) -> None:
        """Ask before the client does: it would wait for ten seconds and then say nothing of the cause."""
        self._waiting = self._ask()

    def next(self) -> tuple[str, float, str, dict[str, str]]:
        """As the client wants it."""
        token, self._waiting = self._waiting or self._ask(), None
        return token.value, token.expires_at, token.principal, dict(token.extensions)

    def valid(self) -> bool:
        """Whether the last token may still be used."""
        return self._clock.time() < self._expires

    def _ask(self) -> OAuthToken:
        ask = self._options.oauth
        assert ask is not None
        try:
            token = self._retry("an OAuth token", ask, lambda error: True)
        except Exception as error:  # noqa: BLE001 - raised again, as an error of ours
            # Neither the message nor the cause travels: either may hold the token or the secret that buys one.
            raise BrokerError(
                f"no OAuth token for Kafka at {self._options.bootstrap_servers}: the function that gets them raised "
                f"{type(error).__name__} in {_where(error)}. What is committed is safe. Mend it, then start again."
            ) from None
        self._expires = token.expires_at
        log.info("a new OAuth token for Kafka, valid for %.0f s", token.expires_at - self._clock.time())
        return token


def _where(error: BaseException) -> str:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return f"{last.tb_frame.f_code.co_qualname}, line {last.tb_lineno}" if last is not None else "an unknown place"


def _partitions(topic: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The topic's real partitions; -1 stands for records that have none yet."""
    return [partition for number, partition in topic.get("partitions", {}).items() if number != "-1"]


def _sum(partitions: list[Mapping[str, Any]], name: str) -> int:
    return sum(partition.get(name, 0) for partition in partitions)
