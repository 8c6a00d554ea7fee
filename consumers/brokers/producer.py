"""Writes records to Kafka: idempotent, acknowledged by all replicas, none lost in silence.

Knows confluent-kafka, and nothing of what is in a record.
"""

import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any, Self, TypeVar

import confluent_kafka as ck
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from consumers.brokers.callbacks import ClientCallbacks
from consumers.brokers.columns import headers_of, keys_of, sendable, stamps_of
from consumers.brokers.deliveries import DeliveryReport, SentBatch, Tally, UndeliveredError
from consumers.brokers.failures import CLIENT_ERRORS, known, refusal, undelivered
from consumers.brokers.options import KafkaOptions, Settings
from consumers.brokers.partitioners import PartitionCounts, Partitioner
from consumers.brokers.producer_settings import producer_settings
from consumers.brokers.protocol import Delivery, Headers, Receipt
from consumers.clock import Clock, SystemClock
from consumers.errors import WeirError
from consumers.metrics import Metrics, NoMetrics

__all__ = ["DeliveryReport", "KafkaProducer", "UndeliveredError"]

T = TypeVar("T")

_CHUNK = 2_000
_FULL_SECONDS = 0.05
_ABANDON_SECONDS = 5.0
_UNUSABLE = (KafkaError._FATAL, KafkaError._FENCED, KafkaError._STATE, KafkaError._DESTROY)
"""Not this record's fault: the producer takes none."""


class KafkaProducer:
    """`BrokerProducer` over confluent-kafka.

    There is no flush for each record: `close` is what tells whether all went well. As a context manager that happens at the end
    of the block, while an exception inside it drops what is still waiting.
    """

    def __init__(
        self,
        options: KafkaOptions,
        *,
        partitioner: Partitioner = "murmur2_random",
        client_id: str = "weir",
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """A client that connects by itself. Raises ValueError for options that would break its promises.

        `options` win over the defaults; `queue.buffering.max.messages` and `queue.buffering.max.kbytes` bound its memory.
        """
        self._options = options
        self._clock = clock or SystemClock()
        self._metrics = metrics or NoMetrics()
        self._tally = Tally()
        self._measured = 0
        self._closed = False
        self._fatal: KafkaError | None = None
        self._callbacks = ClientCallbacks(options, client_id, self._clock, self._metrics, chance or random.Random())
        self._producer = ck.Producer(self._settings(client_id, partitioner))
        self._choose = None if isinstance(partitioner, str) else partitioner
        self._counts = PartitionCounts(self._producer, self._clock)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """Queue one record; waits while the queue is full, taking in delivery reports.

        A record that Kafka can never take (too large, no such partition) is reported as failed, like one that it did not take.
        Raises `BrokerError` when the producer cannot go on at all.
        """
        if partition is None:
            partition = -1 if self._choose is None else self._choose(key, self._counts.of(topic))
        report = self._reported if on_delivery is None else partial(self._told, on_delivery)
        named = list(headers) if headers else None
        try:
            self._producer.produce(topic, value, key, partition, report, None, timestamp_ms or 0, named)  # type: ignore[arg-type]
        except (BufferError, KafkaException) as error:
            refused = self._again(error, (topic, value, key, partition, report, None, timestamp_ms or 0, named))
            if refused is not None:
                self._tally.fail(undelivered(refused))
                if on_delivery is not None:
                    on_delivery(Delivery(topic, partition, -1, undelivered(refused)))
        self._tally.sent += 1
        if not self._tally.sent % _CHUNK:
            self.poll()

    def send_batch(self, topic: str, records: pa.RecordBatch) -> Receipt:
        """Queue a batch; waits while the queue is full, taking in delivery reports. Raises as `send`.

        `records` has a column `value`, and may have `key`, `headers`, `timestamp` and `partition`, of types that can be cast to
        those of `RECORD_COLUMNS`. Raises ValueError, having sent nothing, where that is not so.
        """
        records = sendable(records)
        partitions = self._partitions(topic, records)
        receipt = Receipt(0, [])
        sent = SentBatch(receipt, self._tally, records, partitions)
        for start in range(0, len(records), _CHUNK):
            rows = records.slice(start, _CHUNK)
            chosen = repeat(-1) if partitions is None else (-1 if p is None else p for p in partitions[start : start + _CHUNK])
            self._send_rows(topic, sent, start, rows, chosen)
            self.poll()
        return receipt

    @property
    def waiting(self) -> int:
        """Records that were queued and are not acknowledged yet, as far as reports were taken in."""
        return self._tally.waiting

    @property
    def delivered(self) -> int:
        """Records acknowledged, as far as reports were taken in."""
        return self._tally.delivered

    @property
    def failed(self) -> int:
        """Records given up, as far as reports were taken in."""
        return self._tally.failed

    def poll(self, timeout: float = 0.0) -> None:
        """Take in delivery reports; waits up to `timeout` seconds for the first. Raises `BrokerError` for what is fatal."""
        self._ask("delivering records", partial(self._producer.poll, timeout))
        self._callbacks.raise_failure()
        if (delivered := self._tally.delivered) != self._measured:
            self._callbacks.recovered()
            self._metrics.count("records_out", delivered - self._measured)
            self._measured = delivered

    def flush(self, timeout: float) -> int:
        """Wait until everything is acknowledged or has failed, at most `timeout` seconds. Returns how many records still wait."""
        self._ask("delivering records", partial(self._flush, timeout))
        self.poll()
        return self.waiting

    def close(self, timeout: float = 60.0) -> DeliveryReport:
        """Wait up to `timeout` seconds for what is queued, drop the rest, and let go. A second time asks for the report again.

        Raises `UndeliveredError` when a record failed since the producer was made, or still waited.
        """
        try:
            if not self._closed:
                self.flush(timeout)
        finally:
            self.abandon()
        report = self._tally.report()
        if report.failed:
            raise UndeliveredError(report)
        return report

    def abandon(self) -> None:
        """Let go at once: what is queued or on its way is dropped, and counts as failed."""
        if self._closed:
            return
        self._closed = True
        if self.waiting:
            self._producer.purge()
            with suppress(WeirError):  # it has been raised before, or comes too late to matter
                self._ask("dropping records", partial(self._producer.flush, _ABANDON_SECONDS))
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning), suppress(*CLIENT_ERRORS):
            self._producer.close()
        self._tally.give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _settings(self, client_id: str, partitioner: Partitioner) -> Settings:
        return producer_settings(self._options, client_id, partitioner, self._callbacks)

    def _partitions(self, topic: str, records: pa.RecordBatch) -> Sequence[int | None] | None:
        """Where each row goes, or None where the client decides."""
        names = records.schema.names
        given = records["partition"].to_pylist() if "partition" in names else None
        if self._choose is None:
            return given
        count, keys = self._counts.of(topic), records["key"].to_pylist() if "key" in names else [None] * len(records)
        wanted = given or [None] * len(records)
        return [self._choose(key, count) if p is None else p for key, p in zip(keys, wanted, strict=True)]

    def _send_rows(self, topic: str, sent: SentBatch, first: int, rows: pa.RecordBatch, partitions: Iterable[int]) -> None:
        produce, report = self._producer.produce, sent.reported
        columns = zip(rows["value"].to_pylist(), keys_of(rows), partitions, stamps_of(rows), headers_of(rows), strict=False)
        done = 0
        try:
            for value, key, partition, stamp, headers in columns:
                try:
                    produce(topic, value, key, partition, report, None, stamp, headers)  # type: ignore[arg-type]
                except (BufferError, KafkaException) as error:
                    refused = self._again(error, (topic, value, key, partition, report, None, stamp, headers))
                    if refused is not None:
                        sent.refused(first + done, undelivered(refused))
                done += 1
        finally:
            sent.receipt.waiting += done
            self._tally.sent += done

    def _again(self, error: BufferError | KafkaException, record: tuple[Any, ...]) -> KafkaError | None:
        """Queue a record once there is room; the reason when Kafka can never take it. Raises when the producer cannot go on."""
        while isinstance(error, BufferError):
            self.poll(_FULL_SECONDS)
            try:
                self._producer.produce(*record)
                return None
            except (BufferError, KafkaException) as newer:
                error = newer
        reason = known(error)
        if reason is None or reason.fatal() or reason.code() in _UNUSABLE:
            self.poll()  # knows the cause where the client is done for
            raise self._explain(f"sending to topic '{record[0]}'", reason or KafkaError(KafkaError._FAIL, str(error)))
        return reason

    def _reported(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._tally.delivered += 1
        else:
            self._tally.fail(undelivered(error))

    def _told(self, on_delivery: Callable[[Delivery], None], error: KafkaError | None, message: Message) -> None:
        self._reported(error, message)
        offset = message.offset()
        where = message.topic() or "", message.partition() or 0, -1 if offset is None else offset
        on_delivery(Delivery(*where, None if error is None else undelivered(error)))

    def _flush(self, timeout: float) -> int:
        try:
            return self._producer.flush(timeout)
        except SystemError as error:
            if known(error) is not None:
                raise
            # The client has lost the error that it was to raise; asked again, it says it.
            return self._producer.flush(timeout)

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        """What the client answers. Raises what its error means, again and again where it is fatal."""
        if self._fatal is not None:
            raise self._explain(what, self._fatal)
        try:
            return call()
        except CLIENT_ERRORS as error:
            found = known(error)
            if found is None and isinstance(error, SystemError):
                raise
            reason = found or KafkaError(KafkaError._FAIL, str(error))
        if reason.fatal():
            self._fatal = reason
        raise self._explain(what, reason)

    def _explain(self, what: str, reason: KafkaError) -> WeirError:
        return refusal(f"Kafka at {self._options.bootstrap_servers}: {what}", reason)
