"""`ProduceInTransaction`: records go to another topic, and the group's positions with them, in one Kafka transaction.

Exactly once for whoever reads the topic with `read_committed`. The positions live in the consumer group (`GroupPositions`).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from consumers.brokers.protocol import TransactionalProducer
from consumers.errors import BrokerError, FatalError, OwnershipLost, WeirError
from consumers.processing.context import Surroundings
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.produce import Sent, require_values, send
from consumers.processing.strategies.protocol import Commit, Message, MessageRejected
from consumers.processing.strategies.step import DEFAULT
from consumers.processing.strategies.task import places
from consumers.types import OffsetRange, TopicPartition, join_ranges

DEFAULT_SIZE = UpTo(records=100_000, seconds=1.0)

_CLOSE_SECONDS = 5.0


class ProduceInTransaction:
    """Sends payloads as `Produce` does, and commits them together with the offsets that they account for.

    A transaction begins with the first message and is committed when it is `size`, as soon as its records are acknowledged; then
    `commit` is told. Nothing is taken while a full one waits for that. `size.seconds` has to stay well below the producer's
    transaction timeout. `group_metadata` is that of `GroupPositions`: by it the group's coordinator refuses a member that it has
    put out.

    What fails is aborted. Where nobody else is to blame, `OwnershipLost` makes the engine look up the group's offsets and read
    again from there, which is right also where the answer to a commit was lost. A record that is not delivered ends the run.
    The producer belongs to whoever made it; this is the only one that may use it.
    """

    def __init__(
        self,
        producer: TransactionalProducer,
        topic: str,
        group_metadata: Callable[[], object],
        commit: Commit,
        size: UpTo = DEFAULT_SIZE,
        *,
        keep_partitions: bool = False,
        around: Surroundings = DEFAULT,
    ) -> None:
        if not hasattr(producer, "begin"):
            raise TypeError(
                f"ProduceInTransaction: {type(producer).__name__} has no transactions. Give it a transactional producer "
                "(KafkaTransactionalProducer), or use Produce, which is at least once."
            )
        self._producer = producer
        self._topic = topic
        self._group_metadata = group_metadata
        self._commit = commit
        self._size = size
        self._keep_partitions = keep_partitions
        self._clock = around.clock
        self._open = False
        self._stale = False
        self._flushing = False
        self._sent: list[Sent] = []
        self._ranges: dict[TopicPartition, OffsetRange] = {}
        self._records = self._bytes = 0
        self._since = 0.0

    def submit(self, message: Message[Any]) -> None:
        """Take a message. Raises `FatalError` for one with rejected records: committing it would drop them."""
        if message.rejected:
            raise FatalError(
                f"{len(message.rejected)} invalid records came to ProduceInTransaction on {places(message.ranges)}. Committing "
                "would drop them, so nothing from these offsets on was committed. Put DeadLetters before it and start again."
            )
        require_values(self._topic, message)
        self.poll()
        if self._due():
            raise MessageRejected
        if not self._open:
            self._producer.begin()
            self._open, self._since = True, self._clock.monotonic()
        self._ranges = join_ranges(self._ranges, message.ranges)
        self._records += message.payload.num_rows
        self._bytes += max(message.nbytes, message.payload.nbytes)
        self._sent.append(send(self._producer, self._topic, message, self._keep_partitions))

    def poll(self) -> None:
        if self._stale:
            self._abort()
        if self._open:
            self._producer.poll()
            if (self._due() or self._flushing) and self._whole() and self._delivered():
                self._finish()

    def flush(self, timeout: float) -> bool:
        if self._stale:
            self._abort()
        self._flushing = self._open
        if self._open:
            self._producer.flush(timeout)
            self.poll()
        return not self._open

    def discard(self) -> None:
        """Forget; the transaction is aborted by the next call of anything, since that takes a moment."""
        self._stale = self._stale or self._open
        self._open = self._flushing = False
        self._forget()

    def close(self) -> None:
        self.discard()
        if self._stale:
            with suppress(WeirError):  # the cluster aborts it in the end
                self._abort(_CLOSE_SECONDS)

    def _due(self) -> bool:
        if not self._open or not self._whole():
            return False
        full = self._bytes >= self._size.bytes or (self._size.records is not None and self._records >= self._size.records)
        return full or self._clock.monotonic() - self._since >= self._size.seconds

    def _whole(self) -> bool:
        """Whether everything that was made of the records so far is here."""
        return not (self._sent and self._sent[-1].message.more)

    def _delivered(self) -> bool:
        """Whether all records are acknowledged. Raises `BrokerError` where one cannot be."""
        if not all(sent.done for sent in self._sent):
            return False
        for sent in self._sent:
            sent.require_delivered(self._topic)
        return True

    def _finish(self) -> None:
        """Commit, and say so."""
        ranges = self._ranges
        try:
            self._producer.send_offsets({tp: step.end for tp, step in ranges.items()}, self._group_metadata())
            self._producer.commit_transaction()
        except BrokerError as error:
            self.discard()
            self._abort()
            raise OwnershipLost(f"a transaction of {places(ranges)} was aborted: {error}") from error
        self._open = self._flushing = False
        self._forget()
        self._commit(ranges)

    def _abort(self, *timeout: float) -> None:
        self._stale = False
        self._producer.abort_transaction(*timeout)

    def _forget(self) -> None:
        self._sent, self._ranges = [], {}
        self._records = self._bytes = 0
