"""A transactional producer of the in-memory cluster."""

from contextlib import suppress
from random import Random

from consumers.brokers.deliveries import DeliveryReport, UndeliveredError
from consumers.brokers.memory.cluster import MemoryCluster
from consumers.brokers.memory.group import GroupMetadata
from consumers.brokers.memory.log import Writer
from consumers.brokers.memory.producer import KEPT_ERRORS, MemoryProducer, Parcel
from consumers.errors import BrokerError, OwnershipLost
from consumers.types import Positions


class MemoryTransactionalProducer(MemoryProducer):
    """`TransactionalProducer` on a `MemoryCluster`. Once fenced, a producer is of no more use.

    A transaction that is open for `timeout_seconds` is aborted by the cluster, and its producer fenced.
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        transactional_id: str,
        *,
        client_id: str | None = None,
        timeout_seconds: float = 60.0,
        max_waiting: int = 200_000,
        delivery_seconds: float = 120.0,
        random: Random | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self._timeout_seconds = timeout_seconds
        self._open = False
        self._committed = 0
        super().__init__(
            cluster,
            client_id or transactional_id,
            max_waiting=max_waiting,
            delivery_seconds=delivery_seconds,
            random=random,
        )
        self._name = transactional_id

    def begin(self) -> None:
        """Begin a transaction. The first one fences every older producer with the same transactional id.

        Raises `BrokerError` when this producer was fenced itself: two that fence each other in turn would never end.
        """
        self._require_none_open()
        self._cluster.call("begin", self.client_id, self._begin)
        self._open = True
        self._delivered = self._failed = 0
        self._errors.clear()

    def send_offsets(self, positions: Positions, group_metadata: object) -> None:
        """Put a group's next offsets into the transaction. Raises `OwnershipLost` when the member was fenced meanwhile."""
        if not isinstance(group_metadata, GroupMetadata):
            raise TypeError(f"group metadata of another broker: {group_metadata!r}")
        metadata: GroupMetadata = group_metadata
        self._cluster.call(
            "send_offsets",
            self.client_id,
            lambda: self._cluster.send_offsets(self.transactional_id, self._own(), positions, metadata),
        )

    def commit_transaction(self, timeout: float = 60.0) -> None:
        """Make it visible, once all records are acknowledged.

        Raises `OwnershipLost` when fenced, `BrokerError` for the rest, also where one record failed; then `abort_transaction`.
        """
        waiting = self.flush(timeout)
        self._cluster.call("commit_transaction", self.client_id, lambda: self._commit(waiting), timeout)
        self._open = False
        self._committed += self._delivered

    def abort_transaction(self, timeout: float = 60.0) -> None:
        """Forget it; nothing happens where none is open. Raises `OwnershipLost` when fenced."""
        self._give_up("the transaction was aborted")
        if self._open:
            self._open = False
            self._cluster.call("abort_transaction", self.client_id, lambda: self._end(False), timeout)

    def close(self, timeout: float = 60.0) -> None:
        """Abort the transaction that is open, and let go. Raises `UndeliveredError` when it had records."""
        lost = self._delivered + self._failed + self.waiting if self._open else 0
        with suppress(OwnershipLost):  # a newer producer aborted it
            self.abort_transaction(timeout)
        if lost:
            raise UndeliveredError(DeliveryReport(self._committed, lost, ("their transaction was not committed",)))

    def _identity(self) -> Writer | None:
        return None

    def _own(self) -> Writer:
        if self._writer is None:
            raise BrokerError(f"transactional id '{self.transactional_id}': no transaction has begun; call `begin` first")
        return self._writer

    def _write(self, parcel: Parcel) -> int:
        self._own()
        return super()._write(parcel)

    def _require_none_open(self) -> None:
        """As the real client: after an abort without an answer, only a new producer finds out how the transaction ended."""
        with self._cluster.changed:
            if self._writer is not None and self._cluster.transactions.is_open(self.transactional_id, self._writer):
                raise BrokerError(
                    f"transactional id '{self.transactional_id}': a transaction is open already, or could not be ended. What is "
                    "committed is safe. Make a new producer with the same transactional id: it aborts what was left open."
                )

    def _begin(self) -> None:
        cluster, name = self._cluster, self.transactional_id
        if self._writer is None:
            self._writer = cluster.transactions.take_over(name, self._timeout_seconds, cluster.now_ms())
        try:
            cluster.transactions.begin(name, self._writer, cluster.clock.monotonic())
        except OwnershipLost as error:
            raise BrokerError(f"{error} Give each process a transactional id of its own, then start this one again.") from error

    def _commit(self, waiting: int) -> None:
        self._cluster.transactions.check(self.transactional_id, self._own())
        if waiting or self._errors:
            raise BrokerError(
                f"transactional id '{self.transactional_id}': {waiting} records wait, some failed "
                f"({'; '.join(self._errors[:KEPT_ERRORS])}); nothing was committed. Abort the transaction, then repeat it."
            )
        self._end(True)

    def _end(self, commit: bool) -> None:
        cluster = self._cluster
        cluster.transactions.end(self.transactional_id, self._own(), commit, cluster.now_ms())
        cluster.changed.notify_all()
