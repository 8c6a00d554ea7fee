"""A group member on a real cluster, through librdkafka. It knows offsets and partitions, and nothing of tables."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import confluent_kafka as ck
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from consumers.brokers.admin import KafkaAdmin, describe, passing
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import Partitions, RebalanceListener
from consumers.brokers.records import to_columns
from consumers.clock import Clock, SystemClock
from consumers.errors import BrokerError, DataLoss
from consumers.types import OffsetRange, Positions, RecordBatch, TopicPartition, Watermarks

log = logging.getLogger(__name__)
_client_log = logging.getLogger("consumers.brokers.librdkafka")

_TIMEOUT = 10.0
_AGAIN_SECONDS = 0.1
_REJOINS = 3
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_PASSING = (KafkaError._MAX_POLL_EXCEEDED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class KafkaGroupMember:
    """`BrokerConsumer` over confluent-kafka: one topic, one member."""

    def __init__(self, options: KafkaOptions, topic: str, group: str, client_id: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._topic = topic
        self._listener: RebalanceListener | None = None
        self._next: dict[TopicPartition, int] = {}
        self._moved = False
        self._joining = False
        self._rejoins = 0
        self._failure: BaseException | None = None
        self._fatal: KafkaError | None = None
        self._reported: int | None = None
        # Also the first question: a cluster that cannot be reached, or has no such topic, is an error at once.
        self._admin = KafkaAdmin(options)
        self._admin.topic_id(topic)
        self._consumer = ck.Consumer({**options.consumer(group, client_id), "error_cb": self._on_error, "logger": _client_log})

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group; assignments arrive through `listener` from within `poll`."""
        self._listener = listener
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda _, tps: self._guarded(self._on_assign, _ours(tps)),
            on_revoke=lambda _, tps: self._guarded(self._on_revoke, _ours(tps)),
            on_lost=lambda _, tps: self._guarded(self._on_lost, _ours(tps)),
        )

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """The next records, or the news that partitions were read to their end.

        A position that the topic no longer holds makes the member join again, so that the listener sees what is gone. Raises
        `DataLoss` when that does not help, `BrokerError` for what the cluster refuses, and whatever a listener raised.
        """
        self._moved = False
        try:
            messages = self._consumer.consume(max_records, timeout)
        except KafkaException as error:
            raise BrokerError(f"topic '{self._topic}': {describe(error)}") from error
        self._raise_failures()
        if self._moved:
            self._again(messages)
            return None
        if not messages:
            return None
        self._reported = None
        return self._batch(messages)

    def seek(self, positions: Positions) -> None:
        """Fetch from these offsets next."""
        for tp, offset in positions.items():
            self._next[tp] = offset
            place = ck.TopicPartition(tp.topic, tp.partition, offset)
            # A partition that was assigned a moment ago cannot be sought until its fetching has begun.
            self._ask(f"{tp} from offset {offset}", partial(self._consumer.seek, place), (KafkaError._STATE,))

    def pause(self) -> None:
        """Stop fetching all assigned partitions."""
        self._consumer.pause(_theirs(self._next))

    def resume(self) -> None:
        """Fetch all assigned partitions again, from where the last batch ended."""
        self._consumer.resume(_theirs(self._next))

    def commit(self, positions: Positions, wait: bool = False) -> None:
        """Commit group offsets; a failure costs nothing but a stale lag in Kafka's own tools, so it is logged."""
        if not positions:
            return
        try:
            if wait:
                self._consumer.commit(offsets=_theirs(positions), asynchronous=False)
            else:
                self._consumer.commit(offsets=_theirs(positions), asynchronous=True)
        except KafkaException as error:
            log.warning("group offsets of %s were not committed: %s", self._topic, describe(error))

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

    def group_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Committed offsets of the group; partitions without one are absent."""
        asked = _theirs(dict.fromkeys(partitions, 0))
        answer = self._ask("the group's committed offsets", partial(self._consumer.committed, asked, _TIMEOUT))
        return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in answer if tp.offset >= 0}

    def offsets_at(self, partitions: Partitions, timestamp_ms: int) -> dict[TopicPartition, int]:
        """`offsets_for_times`, with the end of the partition where no record is that young."""
        asked = _theirs(dict.fromkeys(partitions, timestamp_ms))
        answer = self._ask("offsets for a timestamp", partial(self._consumer.offsets_for_times, asked, _TIMEOUT))
        found = {TopicPartition(tp.topic, tp.partition): tp.offset for tp in answer}
        ends = self.watermarks(frozenset(tp for tp, offset in found.items() if offset < 0))
        return {tp: ends[tp].high if tp in ends else offset for tp, offset in found.items()}

    def partitions(self) -> Partitions:
        """Ask the cluster."""
        count = self._admin.partitions(self._topic)
        return frozenset(TopicPartition(self._topic, p) for p in range(count))

    def topic_id(self) -> str:
        """Ask the cluster."""
        return self._admin.topic_id(self._topic)

    def close(self) -> None:
        """Leave the group. Listeners may be called once more; what they raise is raised here."""
        self._consumer.close()
        self._raise_failures()

    def _ask(self, what: str, question: Callable[[], Any], too_early: tuple[int, ...] = ()) -> Any:
        """A blocking question, asked again for a while where the cluster is busy with itself."""
        deadline = self._clock.monotonic() + _TIMEOUT
        while True:
            try:
                return question()
            except KafkaException as error:
                soon = passing(error) or error.args[0].code() in too_early
                if not soon or self._clock.monotonic() > deadline:
                    raise BrokerError(f"Kafka did not tell {what}: {describe(error)}") from error
            self._clock.sleep(_AGAIN_SECONDS)

    def _batch(self, messages: list[Message]) -> RecordBatch | None:
        ends: dict[TopicPartition, int] = {}
        if any(map(Message.error, messages)):
            messages, ends = self._sift(messages)
        records = to_columns(messages)
        offsets = records["offset"].to_numpy()
        partitions = records["partition"].to_numpy()
        known = self._next
        found, last = np.unique(partitions[::-1], return_index=True)
        reached = {TopicPartition(self._topic, int(p)): int(offsets[::-1][i]) + 1 for p, i in zip(found, last, strict=True)}
        if repeated := _repeated(partitions, offsets, known):
            records = records.filter(pa.array(repeated))
        for tp, end in ends.items():
            reached[tp] = max(end, reached.get(tp, 0))
        ranges = {tp: OffsetRange(known[tp], end) for tp, end in reached.items() if tp in known and end > known[tp]}
        if not ranges:
            return None
        self._rejoins = 0
        self._next = {**known, **{tp: r.end for tp, r in ranges.items()}}
        return RecordBatch(self._topic, records, ranges)

    def _sift(self, messages: list[Message]) -> tuple[list[Message], dict[TopicPartition, int]]:
        """Records apart from events: ends of partitions, and errors."""
        records, ends = [], {}
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[TopicPartition(self._topic, message.partition() or 0)] = message.offset() or 0
            else:
                self._raise_event(error, message)
        return records, ends

    def _again(self, messages: list[Message]) -> None:
        """Read messages once more: partitions came or went while they were collected, and none has been handed on."""
        records, ends = self._sift(messages)
        seen = {TopicPartition(self._topic, message.partition() or 0) for message in records} | ends.keys()
        if not self._joining:
            self.seek({tp: self._next[tp] for tp in seen if tp in self._next})

    def _join_again(self, where: str, offset: int | None, error: KafkaError) -> None:
        """Give all partitions back and join anew: whoever is then asked where to start finds out what is gone."""
        self._rejoins += 1
        if self._rejoins > _REJOINS:
            raise DataLoss(
                f"{where}: offset {offset} is not in the topic any more ({error.str()}), although its watermarks say so. What is "
                "committed is safe. Look at the health of the partition's replicas, then start again."
            )
        log.warning("%s: offset %s is not in the topic any more; joining again to see what is gone", where, offset)
        self._joining = True
        self._consumer.unsubscribe()
        if self._listener is not None:
            self.subscribe(self._listener)

    def _raise_event(self, error: KafkaError, message: Message) -> None:
        where = f"{message.topic() or self._topic}/{message.partition()}"
        if error.code() in _OUT_OF_RANGE:
            if not self._joining and TopicPartition(self._topic, message.partition() or 0) in self._next:
                self._join_again(where, message.offset(), error)
            return
        if error.retriable() or error.code() in _PASSING:
            log.warning("%s: %s", where, error.str())
            return
        raise BrokerError(f"{where}: {error.str()} ({error.name()})")

    def _guarded(self, react: Callable[[Partitions], None], partitions: Partitions) -> None:
        """Run a rebalance callback; what it raises travels through `poll`, not through the client."""
        self._moved = True
        try:
            react(partitions)
        except BaseException as error:  # noqa: BLE001 - raised again by poll(), on the same thread
            self._failure = self._failure or error

    def _on_assign(self, partitions: Partitions) -> None:
        self._joining = False
        if self._listener is None:
            return
        starts = self._listener.assigned(partitions)
        if partitions:
            self._next |= starts
            self._consumer.incremental_assign(_theirs(starts))

    def _on_revoke(self, partitions: Partitions) -> None:
        if self._listener is not None:
            self._listener.revoked(partitions)
        self._forget(partitions)

    def _on_lost(self, partitions: Partitions) -> None:
        if self._listener is not None:
            self._listener.lost(partitions)
        self._forget(partitions)

    def _forget(self, partitions: Partitions) -> None:
        self._next = {tp: offset for tp, offset in self._next.items() if tp not in partitions}

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        elif error.code() != self._reported:
            # The client repeats itself many times a second while a broker is away; once is enough until it has recovered.
            self._reported = error.code()
            log.warning("Kafka client: %s (%s); it goes on trying", error.str(), error.name())

    def _raise_failures(self) -> None:
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        if self._fatal is not None:
            raise BrokerError(f"topic '{self._topic}': {self._fatal.str()} ({self._fatal.name()})")


def _repeated(partitions: np.ndarray, offsets: np.ndarray, known: Mapping[TopicPartition, int]) -> list[bool] | None:
    """Which rows to keep, where some are below their partition's next offset or of no partition of ours; else None."""
    floor = np.full(int(partitions.max(initial=0)) + 1, np.iinfo(np.int64).max)
    for tp, offset in known.items():
        if tp.partition < len(floor):
            floor[tp.partition] = offset
    kept = offsets >= floor[partitions]
    return None if kept.all() else [bool(k) for k in kept]


def _ours(partitions: list[ck.TopicPartition]) -> Partitions:
    return frozenset(TopicPartition(tp.topic, tp.partition) for tp in partitions)


def _theirs(positions: Positions) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions.items()]
