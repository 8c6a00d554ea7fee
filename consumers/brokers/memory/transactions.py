"""The transaction coordinator: who may write under a transactional id, what is open, and what ends it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from consumers.brokers.memory.log import PartitionLog, Writer
from consumers.errors import BrokerError, OwnershipLost
from consumers.types import Positions, TopicPartition

Apply = Callable[[str, Positions], None]


@dataclass(slots=True)
class Transaction:
    """What an identity has open: the logs that it wrote to, and the group offsets that wait for the commit."""

    writer: Writer
    seconds: float
    began: float | None = None
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    finished: bool | None = None


class Transactions:
    """All transactional ids of a cluster. `apply` puts a group's offsets in place when a transaction commits."""

    def __init__(self, apply: Apply) -> None:
        self._apply = apply
        self._known: dict[str, Transaction] = {}
        self._producers = 0

    def identity(self) -> Writer:
        """A new idempotent producer's identity."""
        self._producers += 1
        return Writer(self._producers)

    def take_over(self, name: str, seconds: float, now_ms: int) -> Writer:
        """The next epoch of a transactional id: fences every older one, and aborts what it left open."""
        known = self._known.get(name)
        if known is None:
            writer = Writer(self.identity().producer, 0, True)
        else:
            self._end(known, False, now_ms)
            writer = Writer(known.writer.producer, known.writer.epoch + 1, True)
        self._known[name] = Transaction(writer, seconds)
        return writer

    def is_open(self, name: str, writer: Writer) -> bool:
        """Whether this identity has begun a transaction that has not ended."""
        known = self._known[name]
        return known.writer == writer and known.began is not None

    def begin(self, name: str, writer: Writer, now: float) -> None:
        """Open a transaction."""
        self.check(name, writer).began = now

    def writes(self, name: str, writer: Writer, tp: TopicPartition, log: PartitionLog) -> None:
        """A record is about to be written to this log within the open transaction."""
        self._begun(name, writer).logs[tp] = log

    def offsets(self, name: str, writer: Writer, group: str, positions: Positions) -> None:
        """A group's next offsets belong to the open transaction."""
        self._begun(name, writer).offsets.setdefault(group, {}).update(positions)

    def end(self, name: str, writer: Writer, commit: bool, now_ms: int) -> None:
        """Commit or abort. The same answer again for the same question, so that it can be asked twice."""
        transaction = self.check(name, writer)
        if transaction.began is None and transaction.finished is commit:
            return
        self._end(transaction, commit, now_ms)

    def expire(self, now: float, now_ms: Callable[[], int]) -> None:
        """Abort what has been open for too long, and fence whoever left it so."""
        for name, transaction in self._known.items():
            if transaction.began is not None and now - transaction.began >= transaction.seconds:
                self._end(transaction, False, now_ms())
                writer = transaction.writer
                self._known[name] = Transaction(Writer(writer.producer, writer.epoch + 1, True), transaction.seconds)

    def unsettled(self, group: str, partitions: frozenset[TopicPartition]) -> bool:
        """Whether an open transaction has offsets of these partitions in hand."""
        return any(t.offsets.get(group, {}).keys() & partitions for t in self._known.values())

    def check(self, name: str, writer: Writer) -> Transaction:
        """What the identity has. Raises `OwnershipLost` when it was fenced."""
        known = self._known[name]
        if known.writer != writer:
            raise OwnershipLost(
                f"transactional id '{name}': a newer producer has it (epoch {known.writer.epoch} after {writer.epoch}), or "
                "the transaction was open for too long. What this one had open was aborted."
            )
        return known

    def _begun(self, name: str, writer: Writer) -> Transaction:
        known = self.check(name, writer)
        if known.began is None:
            raise BrokerError(f"transactional id '{name}': no transaction has begun; call `begin` first")
        return known

    def _end(self, transaction: Transaction, commit: bool, now_ms: int) -> None:
        for log in transaction.logs.values():
            log.end_transaction(transaction.writer.producer, commit, now_ms)
        if commit:
            for group, positions in transaction.offsets.items():
                self._apply(group, positions)
        transaction.logs, transaction.offsets, transaction.began, transaction.finished = {}, {}, None, commit
