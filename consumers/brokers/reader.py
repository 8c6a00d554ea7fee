"""What all readers of a real cluster have in common, however they come by their partitions: fetching, places, questions."""

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException, Message

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.callbacks import ClientCallbacks
from consumers.brokers.failures import CLIENT_ERRORS, describe, known, passing, refusal
from consumers.brokers.options import KafkaOptions, unmade
from consumers.brokers.protocol import Partitions, RebalanceListener
from consumers.brokers.records import sift, to_batch
from consumers.brokers.retry import Backoff, Retry
from consumers.clock import Clock, SystemClock
from consumers.errors import BrokerError, DataLoss
from consumers.metrics import Metrics, NoMetrics
from consumers.types import Positions, RecordBatch, TopicPartition, Watermarks

log = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT = 10.0
_REJOINS = 3
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_PASSING = (KafkaError._MAX_POLL_EXCEEDED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class KafkaReader(ABC):
    """The common part of `BrokerConsumer` over confluent-kafka: one topic, partitions with the next offset of each.

    Whoever derives from it says how partitions are come by (`_begin`, `_begin_again`) and takes them with `_take`.
    """

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        client_id: str,
        clock: Clock | None,
        metrics: Metrics | None,
        chance: random.Random | None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._metrics = metrics or NoMetrics()
        self._chance = chance or random.Random()
        self._options = options
        self._topic = topic
        self._listener: RebalanceListener | None = None
        self._next: dict[TopicPartition, int] = {}
        self._paused = False
        self._moved = False
        self._joining = False
        self._rejoins = 0
        self._closed = False
        self._retry = Retry(self._clock, self._chance, self._metrics, Backoff(limit=_TIMEOUT))
        self._callbacks = ClientCallbacks(options, client_id, self._clock, self._metrics, self._chance)
        # Also the first question: a cluster that cannot be reached, or has no such topic, is an error at once.
        self._admin = KafkaAdmin(options, clock=self._clock, metrics=self._metrics, chance=self._chance)
        self._admin.topic_id(topic)

    def _connect(self, settings: dict[str, Any]) -> ck.Consumer:
        """The client. Raises `BrokerError` for settings that it does not take."""
        try:
            return ck.Consumer({**settings, "on_commit": self._on_commit})
        except KafkaException as error:
            raise unmade(self._options, error) from None

    _consumer: ck.Consumer

    def subscribe(self, listener: RebalanceListener) -> None:
        """Begin; partitions arrive through `listener` from within `poll`."""
        self._listener = listener
        self._begin()

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """The next records, or the news that partitions were read to their end.

        A position that the topic no longer holds makes the reader begin again, so that the listener sees what is gone. Raises
        `DataLoss` when that does not help, `BrokerError` for what the cluster refuses, and whatever a listener raised.
        """
        self._moved = False
        try:
            messages = self._consumer.consume(max_records, timeout)
        except CLIENT_ERRORS as error:
            raise self._ended(error) from error
        self._raise_failures()
        if self._moved:
            self._read_again(messages)
            return None
        if not messages:
            return None
        self._callbacks.recovered()
        return self._batch(messages)

    def seek(self, positions: Positions) -> None:
        """Fetch from these offsets next."""
        for tp, offset in positions.items():
            self._next[tp] = offset
            place = ck.TopicPartition(tp.topic, tp.partition, offset)
            # A partition that was assigned a moment ago cannot be sought until its fetching has begun.
            self._ask(f"go to {tp}, offset {offset}", partial(self._consumer.seek, place), (KafkaError._STATE,))

    def pause(self) -> None:
        """Stop fetching all assigned partitions, and those that are assigned until `resume`."""
        self._paused = True
        self._consumer.pause(_theirs(self._next))

    def resume(self) -> None:
        """Fetch all assigned partitions again, from where the last batch ended."""
        self._paused = False
        self._consumer.resume(_theirs(self._next))

    def watermarks(self, partitions: Partitions) -> dict[TopicPartition, Watermarks]:
        """Ask the partition leaders, in two questions and over a connection of their own.

        On the consumer's, the question for each partition would wait behind a fetch, half a second where nothing is new.
        """
        return self._admin.stable_watermarks(partitions)

    def high_watermarks(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """What the last fetch responses said."""
        found = {}
        for tp in partitions:
            _, high = self._consumer.get_watermark_offsets(ck.TopicPartition(tp.topic, tp.partition), cached=True)
            if high >= 0:
                found[tp] = high
        return found

    def offsets_at(self, partitions: Partitions, timestamp_ms: int) -> dict[TopicPartition, int]:
        """`offsets_for_times`, with the end of the partition where no record is that young."""
        asked = _theirs(dict.fromkeys(partitions, timestamp_ms))
        answer = self._ask("tell the offsets of a timestamp", partial(self._consumer.offsets_for_times, asked, _TIMEOUT))
        found = _offsets(answer)
        ends = self.watermarks(frozenset(tp for tp, offset in found.items() if offset < 0))
        return {tp: ends[tp].high if tp in ends else offset for tp, offset in found.items()}

    def partitions(self) -> Partitions:
        """Ask the cluster."""
        return frozenset(TopicPartition(self._topic, p) for p in range(self._admin.partitions(self._topic)))

    def topic_id(self) -> str:
        """Ask the cluster."""
        return self._admin.topic_id(self._topic)

    def close(self) -> None:
        """Let go of all partitions. Listeners may be called once more; what they raise is raised here. Twice is once."""
        if self._closed:
            return
        self._closed = True
        try:
            self._consumer.close()
        except CLIENT_ERRORS as error:
            raise self._ended(error) from error
        finally:
            self._admin.close()
        self._raise_failures()

    @abstractmethod
    def _begin(self) -> None:
        """Ask for partitions."""

    @abstractmethod
    def _begin_again(self) -> None:
        """Give all partitions back, and ask for them anew."""

    def _raise_failures(self) -> None:
        """Raise what ends the run, if anything has happened that does."""
        self._callbacks.raise_failure()

    def _take(self, starts: Positions, take: Callable[[list[ck.TopicPartition]], None]) -> None:
        """These partitions are read from here on; `take` tells the client."""
        self._next |= starts
        take(_theirs(starts))
        if self._paused:
            self._consumer.pause(_theirs(starts))
        else:
            # The client keeps a partition paused that went away so and comes back.
            self._consumer.resume(_theirs(starts))

    def _forget(self, partitions: Partitions) -> None:
        self._next = {tp: offset for tp, offset in self._next.items() if tp not in partitions}

    def _ask(self, what: str, question: Callable[[], T], too_early: tuple[int, ...] = ()) -> T:
        """A blocking question, asked again for a while where the cluster is busy with itself."""

        def soon(error: Exception) -> bool:
            inner = known(error)
            return passing(error) or (inner is not None and inner.code() in too_early)

        try:
            return self._retry(what, question, soon)
        except KafkaException as error:
            why = self._options.without_secrets(describe(error)) + self._callbacks.said()
            raise BrokerError(f"Kafka at {self._options.bootstrap_servers} did not {what}: {why}") from error

    def _batch(self, messages: list[Message]) -> RecordBatch | None:
        records, ends, errors = sift(messages)
        for event in errors:
            self._heed(event)
        batch = to_batch(self._topic, records, ends, self._next)
        if batch is not None:
            self._rejoins = 0
            self._next = {**self._next, **{tp: r.end for tp, r in batch.ranges.items()}}
        return batch

    def _read_again(self, messages: list[Message]) -> None:
        """Read messages once more: partitions came or went while they were collected, and none has been handed on."""
        records, ends, errors = sift(messages)
        for event in errors:
            self._heed(event)
        seen = {TopicPartition(self._topic, message.partition() or 0) for message in records} | ends.keys()
        if not self._joining:
            self.seek({tp: self._next[tp] for tp in seen if tp in self._next})

    def _heed(self, event: Message) -> None:
        error = event.error()
        assert error is not None
        where = f"{event.topic()}/{event.partition()}" if event.topic() else f"topic '{self._topic}'"
        if error.code() in _OUT_OF_RANGE:
            if not self._joining and TopicPartition(self._topic, event.partition() or 0) in self._next:
                self._look_what_is_gone(where, event.offset(), error)
        elif error.retriable() or error.code() in _PASSING:
            self._metrics.count("client_errors", tags={"error": error.name()})
            log.warning("%s: %s", where, error.str())
        else:
            raise refusal(where, error)

    def _look_what_is_gone(self, where: str, offset: int | None, error: KafkaError) -> None:
        """Whoever is asked anew where to start finds out what is gone."""
        self._rejoins += 1
        if self._rejoins > _REJOINS:
            raise DataLoss(
                f"{where}: offset {offset} is not in the topic any more ({error.str()}), although its watermarks say so. What is "
                "committed is safe. Look at the health of the partition's replicas, then start again."
            )
        log.warning("%s: offset %s is not in the topic any more; joining again to see what is gone", where, offset)
        self._joining = True
        self._begin_again()

    def _ended(self, error: Exception) -> BrokerError:
        inner = known(error)
        if inner is None and isinstance(error, SystemError):
            raise error
        if inner is None:
            return BrokerError(f"topic '{self._topic}': {describe(error)}")
        return refusal(f"topic '{self._topic}'", inner)

    def _on_commit(self, error: KafkaError | None, partitions: list[ck.TopicPartition]) -> None:
        """What became of a commit. A failure costs nothing but a stale lag in Kafka's own tools, so it is logged."""
        failed = error or next((tp.error for tp in partitions if tp.error is not None), None)
        if failed is not None and failed.code() != KafkaError._NO_OFFSET:
            log.warning("group offsets of %s were not committed: %s", self._topic, failed.str())


def _ours(partitions: list[ck.TopicPartition]) -> Partitions:
    return frozenset(TopicPartition(tp.topic, tp.partition) for tp in partitions)


def _theirs(positions: Positions) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions.items()]


def _offsets(answer: list[ck.TopicPartition]) -> dict[TopicPartition, int]:
    return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in answer}
