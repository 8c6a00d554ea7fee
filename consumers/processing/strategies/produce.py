"""`Produce`: records go to another topic; positions pass them once the cluster has acknowledged them.

At least once: after a crash, or when partitions are taken away, records that were not committed yet are produced a second time.
`ProduceInTransaction` is exactly once.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from consumers.brokers.protocol import BrokerProducer, Receipt
from consumers.errors import BrokerError, FatalError
from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message, MessageRejected, Strategy
from consumers.processing.strategies.step import DEFAULT, Link
from consumers.processing.strategies.task import places
from consumers.types import Ranges

_PAUSE_SECONDS = 0.005
_MOST_MESSAGES = 1_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A message whose records are on their way, or there."""

    message: Message[Any]
    receipts: Sequence[Receipt]

    @property
    def done(self) -> bool:
        """Whether nothing of it waits for an acknowledgement."""
        return not any(receipt.waiting for receipt in self.receipts)

    def require_delivered(self, topic: str) -> None:
        """Raises `BrokerError` when a record was not delivered."""
        failed = [reason for receipt in self.receipts for _, reason in receipt.failed]
        if failed:
            raise BrokerError(undelivered(topic, self.message.ranges, self.message.payload.num_rows, failed))


def require_values(topic: str, message: Message[Any]) -> None:
    """Raises `FatalError` for a message whose payload is no record batch or table, or has no values."""
    payload = message.payload
    if not isinstance(payload, pa.RecordBatch | pa.Table):
        raise FatalError(_not_to_be_sent(topic, message, f"is a {type(payload).__name__}, and no record batch or table"))
    if "value" not in payload.schema.names:
        names = ", ".join(payload.schema.names) or "none"
        raise FatalError(_not_to_be_sent(topic, message, f"has no column 'value' (but {names})"))


def send(producer: BrokerProducer, topic: str, message: Message[Any], keep_partitions: bool) -> Sent:
    """Queue a payload that has values. Raises `FatalError` where a column's type cannot be sent."""
    payload = message.payload
    if not keep_partitions and "partition" in payload.schema.names:
        payload = payload.drop_columns(["partition"])
    batches = payload.to_batches() if isinstance(payload, pa.Table) else [payload]
    try:
        return Sent(message, [producer.send_batch(topic, batch) for batch in batches if batch.num_rows])
    except (pa.ArrowException, TypeError) as error:
        why = f"has a column of a type that cannot be sent ({error}); values and keys are binary or string"
        raise FatalError(_not_to_be_sent(topic, message, why)) from error


def _not_to_be_sent(topic: str, message: Message[Any], why: str) -> str:
    return (
        f"What was to be sent to topic '{topic}' {why}. It was made of {places(message.ranges)}; nothing from these offsets on "
        "was committed. Mend the step before."
    )


def undelivered(topic: str, ranges: Ranges, rows: int, failed: Sequence[str]) -> str:
    """What to tell when records of a message were not delivered."""
    return (
        f"{len(failed)} of {rows} records were not delivered to topic '{topic}' ({failed[0]}). They were made of "
        f"{places(ranges)}. Nothing from these offsets on was committed; everything before is safe. "
        "See that the cluster is up and that the topic takes such records, then start again."
    )


class Produce(Link[Any]):
    """Sends the rows of a payload to a topic, and passes the message on as it is, in order, when all of them are acknowledged.

    The payload is a `pa.RecordBatch` or `pa.Table` with a column `value`, and maybe `key`, `headers` and `timestamp` (see
    `BrokerProducer.send_batch`). The key decides where a record goes; with `keep_partitions` the column `partition` does, so that
    records go to the partition of the number that they came from.
    Rejected records stay in the message, for the step after. The producer belongs to whoever made it, and may be shared.

    It is full at `max_records` or `max_bytes` on their way (bytes of the payloads, or of their source records where those are
    more). A record that is not delivered ends the run.
    """

    def __init__(
        self,
        producer: BrokerProducer,
        topic: str,
        next_step: Strategy[Any],
        *,
        max_records: int = 100_000,
        max_bytes: int = 64 * 2**20,
        keep_partitions: bool = False,
        around: Surroundings = DEFAULT,
    ) -> None:
        super().__init__(next_step, around)
        self._producer = producer
        self._topic = topic
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._keep_partitions = keep_partitions
        self._sent: deque[Sent] = deque()
        self._records = 0
        self._bytes = 0

    def submit(self, message: Message[Any]) -> None:
        require_values(self._topic, message)
        self._drain()
        if self._sent and (self._sent[0].done or self._full(message)):
            raise MessageRejected
        self._sent.append(send(self._producer, self._topic, message, self._keep_partitions))
        self._records += message.payload.num_rows
        self._bytes += _bytes(message)

    def flush(self, timeout: float) -> bool:
        clock = self._around.clock
        deadline = clock.monotonic() + timeout
        self._flushing = True
        # Only then the next step: each flush of it may be a commit.
        while not self._drain():
            if (left := deadline - clock.monotonic()) <= 0:
                return False
            if self._sent[0].done:
                clock.sleep(min(_PAUSE_SECONDS, left))
                self._next_step.poll()
            else:
                self._producer.flush(min(_PAUSE_SECONDS, left))
        done = self._next_step.flush(max(0.0, deadline - clock.monotonic()))
        self._flushing = not done
        return done

    def _forget(self) -> None:
        self._sent.clear()
        self._records = self._bytes = 0

    def _full(self, message: Message[Any]) -> bool:
        records, size = self._records + message.payload.num_rows, self._bytes + _bytes(message)
        return records > self._max_records or size > self._max_bytes or len(self._sent) >= _MOST_MESSAGES

    def _drain(self) -> bool:
        self._producer.poll()
        while self._sent and self._sent[0].done:
            first = self._sent[0]
            first.require_delivered(self._topic)
            try:
                self._next_step.submit(first.message)
            except MessageRejected:
                return False
            self._sent.popleft()
            self._records -= first.message.payload.num_rows
            self._bytes -= _bytes(first.message)
        return not self._sent


def _bytes(message: Message[Any]) -> int:
    """What a message keeps in memory: also records that were filtered out."""
    return max(message.nbytes, int(message.payload.nbytes))
