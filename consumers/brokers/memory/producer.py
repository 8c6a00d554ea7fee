"""A producer of the in-memory cluster."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pyarrow as pa

from consumers.brokers.deliveries import DeliveryReport, UndeliveredError
from consumers.brokers.memory.cluster import MemoryCluster
from consumers.brokers.memory.log import Draft, Writer
from consumers.brokers.memory.partitioner import partition_of
from consumers.brokers.protocol import Delivery, Headers, Receipt
from consumers.errors import BrokerError, OwnershipLost
from consumers.types import TopicPartition

_AGAIN_SECONDS = 0.1
KEPT_ERRORS = 10


@dataclass(slots=True)
class Parcel:
    """Records of one partition that are written, acknowledged or refused as one. `report` hears the first offset or why not."""

    tp: TopicPartition
    drafts: list[Draft]
    report: Callable[[int, str | None], None]
    deadline: float
    sequence: int = 0


class MemoryProducer:
    """`BrokerProducer` on a `MemoryCluster`.

    A record is in the log when `send` returns, unless a fault says otherwise; its acknowledgement is taken in by `poll`, `flush`,
    and by a `send` that finds the queue full. What failed transiently is sent again by the next of those, in order, for
    `delivery_seconds`. Without `idempotent`, a repeated record is written twice. `random` places records without a key.
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        client_id: str = "producer",
        *,
        idempotent: bool = True,
        max_waiting: int = 200_000,
        delivery_seconds: float = 120.0,
        random: Random | None = None,
    ) -> None:
        self.client_id = client_id
        self._cluster = cluster
        self._random = random or Random()
        self._max_waiting = max_waiting
        self._delivery_seconds = delivery_seconds
        self._name: str | None = None
        self._writer = self._identity() if idempotent else None
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._unsent: deque[Parcel] = deque()
        self._answers: deque[tuple[Parcel, int, str | None]] = deque()
        self._waiting = 0
        self._delivered = 0
        self._failed = 0
        self._errors: list[str] = []

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
        """Queue one record; waits while the queue is full. Without `partition` the key decides, by murmur2."""
        tp = TopicPartition(topic, self._place(topic, key, partition))

        def report(offset: int, error: str | None) -> None:
            if on_delivery is not None:
                on_delivery(Delivery(topic, tp.partition, offset, error))

        self._queue(tp, [Draft(value, key, tuple(headers), timestamp_ms)], report)
        self._make_room()
        self._transmit()

    def send_batch(self, topic: str, records: pa.RecordBatch) -> Receipt:
        """Queue a batch; waits while the queue is full. Its columns are described in `BrokerProducer`."""
        receipt = Receipt(records.num_rows, [])
        limit = self._limit(topic)
        parcels: dict[tuple[int, int], tuple[list[int], list[Draft]]] = {}
        for row, (place, draft) in enumerate(self._drafts(topic, records)):
            # A record that is too large is refused alone.
            rows, drafts = parcels.setdefault((place, row if draft.size > limit else -1), ([], []))
            rows.append(row)
            drafts.append(draft)
        for (place, _), (rows, drafts) in parcels.items():
            self._queue(TopicPartition(topic, place), drafts, _acknowledge(receipt, rows))
        self._make_room()
        self._transmit()
        return receipt

    @property
    def waiting(self) -> int:
        """Records that were queued and are not acknowledged yet."""
        return self._waiting

    def poll(self, timeout: float = 0.0) -> None:
        """Take in delivery reports; waits up to `timeout` seconds for the first."""
        clock = self._cluster.clock
        deadline = clock.monotonic() + timeout
        while True:
            self._transmit()
            if self._take_in() or not self._unsent or clock.monotonic() >= deadline:
                return
            clock.sleep(_AGAIN_SECONDS)

    def flush(self, timeout: float) -> int:
        """Wait until everything is acknowledged or has failed, at most `timeout` seconds. Returns how many records still wait."""
        deadline = self._cluster.clock.monotonic() + timeout
        while self._waiting:
            self.poll(max(0.0, deadline - self._cluster.clock.monotonic()))
            if self._cluster.clock.monotonic() >= deadline:
                break
        return self._waiting

    def close(self, timeout: float = 60.0) -> None:
        """Flush, then let go. Raises `UndeliveredError` when a record failed since the producer was made, or still waits."""
        self.flush(timeout)
        self._give_up("not acknowledged when the producer was closed")
        if self._failed:
            raise UndeliveredError(
                DeliveryReport(self._delivered, self._failed, tuple(dict.fromkeys(self._errors))[:KEPT_ERRORS])
            )

    def _give_up(self, why: str) -> None:
        while self._unsent:
            self._answers.append((self._unsent.popleft(), -1, why))
        self._take_in()

    def _identity(self) -> Writer | None:
        with self._cluster.changed:
            return self._cluster.transactions.identity()

    def _drafts(self, topic: str, records: pa.RecordBatch) -> list[tuple[int, Draft]]:
        columns = {name: records[name] for name in records.schema.names}
        nothing = [None] * records.num_rows
        keys = columns["key"].to_pylist() if "key" in columns else nothing
        stamps = columns["timestamp"].cast(pa.int64()).to_pylist() if "timestamp" in columns else nothing
        headers = columns["headers"].to_pylist() if "headers" in columns else nothing
        places = columns["partition"].to_pylist() if "partition" in columns else nothing
        return [
            (self._place(topic, key, place), Draft(value, key, tuple((h["key"], h["value"]) for h in some or ()), stamp))
            for value, key, some, stamp, place in zip(columns["value"].to_pylist(), keys, headers, stamps, places, strict=True)
        ]

    def _place(self, topic: str, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            return partition
        with self._cluster.changed:
            count = self._cluster.count(topic) or 1
        return self._random.randrange(count) if key is None else partition_of(key, count)

    def _queue(self, tp: TopicPartition, drafts: list[Draft], report: Callable[[int, str | None], None]) -> None:
        parcel = Parcel(tp, drafts, report, self._cluster.clock.monotonic() + self._delivery_seconds)
        self._waiting += len(drafts)
        parcel.sequence = self._sequences[tp]
        self._sequences[tp] += 1
        self._unsent.append(parcel)

    def _make_room(self) -> None:
        while self._waiting > self._max_waiting and (self._unsent or self._answers):
            self.poll(_AGAIN_SECONDS)

    def _transmit(self) -> None:
        """Send what was not acknowledged, in order within a partition."""
        held: deque[Parcel] = deque()
        blocked: set[TopicPartition] = set()
        while self._unsent:
            parcel = self._unsent.popleft()
            if parcel.tp in blocked or not self._sent(parcel):
                blocked.add(parcel.tp)
                held.append(parcel)
        self._unsent = held

    def _sent(self, parcel: Parcel) -> bool:
        """Whether there is an answer, good or bad."""
        clock = self._cluster.clock
        with self._cluster.changed:
            fault = self._cluster.faults.take("produce", self.client_id)
        if fault is not None and fault.seconds:
            clock.sleep(fault.seconds)
        offset, error = -1, None
        if fault is None or fault.fails == "no" or fault.effect:
            try:
                offset = self._write(parcel)
            except (BrokerError, OwnershipLost) as refused:
                error = str(refused)
        if fault is not None and fault.fails == "transient":
            if clock.monotonic() < parcel.deadline:
                return False
            offset, error = -1, f"not acknowledged within {self._delivery_seconds:g} s"
        elif fault is not None and fault.fails == "fatal":
            error = "the cluster refused the record, as the test ordered"
        self._answers.append((parcel, offset, error))
        return True

    def _limit(self, topic: str) -> int:
        with self._cluster.changed:
            return self._cluster.topic(topic).settings.max_message_bytes if self._cluster.count(topic) else 0

    def _write(self, parcel: Parcel) -> int:
        with self._cluster.changed:
            limit = self._cluster.topic(parcel.tp.topic).settings.max_message_bytes
            if (size := max(draft.size for draft in parcel.drafts)) > limit:
                raise BrokerError(f"a record of {size} bytes is larger than {parcel.tp.topic} allows ({limit} bytes)")
            return self._cluster.append(parcel.tp, parcel.drafts, self._writer, parcel.sequence, self._name)

    def _take_in(self) -> bool:
        answered = bool(self._answers)
        while self._answers:
            parcel, offset, error = self._answers.popleft()
            self._waiting -= len(parcel.drafts)
            if error is None:
                self._delivered += len(parcel.drafts)
            else:
                self._failed += len(parcel.drafts)
                self._errors.append(error)
            parcel.report(offset, error)
        return answered


def _acknowledge(receipt: Receipt, rows: list[int]) -> Callable[[int, str | None], None]:
    def report(_offset: int, error: str | None) -> None:
        receipt.waiting -= len(rows)
        if error is not None:
            receipt.failed.extend((row, error) for row in rows)

    return report
