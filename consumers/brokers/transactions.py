"""A producer whose records, and a group's offsets, become visible together or not at all. Knows no strategy."""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import confluent_kafka as ck
from confluent_kafka import KafkaError

from consumers.brokers.deliveries import DeliveryReport, Tally, UndeliveredError
from consumers.brokers.options import KafkaOptions
from consumers.brokers.partitioners import Partitioner
from consumers.brokers.producer import KafkaProducer
from consumers.clock import Clock
from consumers.errors import BrokerError, OwnershipLost, WeirError
from consumers.metrics import Metrics
from consumers.types import Positions

_BEGIN_SECONDS = 60.0
_OFFSETS_SECONDS = 30.0
_ABORT_SECONDS = 5.0
_AGAIN_SECONDS = 0.05
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_MOVED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
)
"""The group has moved on without the member whose offsets these are."""


class KafkaTransactionalProducer(KafkaProducer):
    """`TransactionalProducer` over confluent-kafka.

    Every process needs a transactional id of its own that stays the same when it starts again: a newer producer with the same
    id fences an older one, and ends the transaction that it left open. Once fenced, a producer is of no more use.
    """

    def __init__(
        self,
        options: KafkaOptions,
        transactional_id: str,
        *,
        timeout_seconds: float = 60.0,
        partitioner: Partitioner = "murmur2_random",
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """After `timeout_seconds` the cluster aborts a transaction that was left open. Raises ValueError without an id."""
        if not transactional_id:
            raise ValueError(
                "transactional_id is empty: give each process an id of its own that stays the same when it starts again"
            )
        self.transactional_id = transactional_id
        self._timeout_seconds = timeout_seconds
        self._began = False
        self._open = False
        self._committed = 0
        super().__init__(
            options, partitioner=partitioner, client_id=transactional_id, metrics=metrics, clock=clock, chance=chance
        )

    def begin(self) -> None:
        """Begin a transaction. The first one fences every older producer with the same transactional id.

        Raises `BrokerError` when this producer was fenced itself: two that fence each other in turn would never end.
        """
        if self._fatal is not None and self._fatal.code() in _FENCED:
            raise BrokerError(
                f"a newer producer with the transactional id '{self.transactional_id}' has taken over. What is committed is "
                "safe. Give each process a transactional id of its own, then start this one again."
            )
        if not self._began:
            self._patiently("the first transaction", self._producer.init_transactions, _BEGIN_SECONDS)
            self._began = True
        self._ask("a new transaction", self._producer.begin_transaction)
        self._open = True
        self._tally, self._measured = Tally(), 0

    def send_offsets(self, positions: Positions, group_metadata: object) -> None:
        """Put a group's next offsets into the transaction. Raises `OwnershipLost` when the member was fenced meanwhile."""
        offsets = [ck.TopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions.items()]
        call = partial(self._producer.send_offsets_to_transaction, offsets, group_metadata)
        self._patiently("the group's offsets", call, _OFFSETS_SECONDS)

    def commit_transaction(self, timeout: float = 60.0) -> None:
        """Make it visible, once all records are acknowledged.

        Raises `OwnershipLost` when fenced, `BrokerError` for the rest, also where one record failed; then `abort_transaction`.
        """
        self._patiently("committing the transaction", self._producer.commit_transaction, timeout)
        self.poll()
        self._open = False
        self._committed += self._tally.delivered

    def abort_transaction(self, timeout: float = 60.0) -> None:
        """Forget it; nothing happens where none is open.

        Raises `OwnershipLost` when fenced, and `BrokerError` when the transaction cannot be ended from here, such as where nobody
        knows whether its commit went through: whoever begins next with the same transactional id will find out.
        """
        if self._open:
            self._open = False
            self._patiently("aborting the transaction", self._producer.abort_transaction, timeout)

    @property
    def delivered(self) -> int:
        """Records of committed transactions."""
        return self._committed

    def close(self, timeout: float = 60.0) -> DeliveryReport:
        """Abort the transaction that is open, and let go. Raises `UndeliveredError` when it had records."""
        lost = self._tally.sent if self._open else 0
        self.abandon()
        report = DeliveryReport(self._committed, lost, ("their transaction was not committed",) if lost else ())
        if lost:
            raise UndeliveredError(report)
        return report

    def abandon(self) -> None:
        """Let go at once, aborting the transaction that is open."""
        if not self._closed:
            with suppress(WeirError):  # the cluster aborts it in the end
                self.abort_transaction(_ABORT_SECONDS)
        super().abandon()

    def _settings(self, client_id: str, partitioner: Partitioner) -> dict[str, Any]:
        return {
            **super()._settings(client_id, partitioner),
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": int(self._timeout_seconds * 1000),
        }

    def _patiently(self, what: str, call: Callable[[float], None], timeout: float) -> None:
        """A call that the client asks to repeat when something passed it by, for `timeout` seconds at most."""
        deadline = self._clock.monotonic() + timeout
        while True:
            left = deadline - self._clock.monotonic()
            try:
                return self._ask(what, partial(call, max(left, _AGAIN_SECONDS)))
            except _Passing:
                if left <= 0:
                    raise
            self._clock.sleep(_AGAIN_SECONDS)

    def _explain(self, what: str, reason: KafkaError) -> WeirError:
        name = f"transactional id '{self.transactional_id}'"
        if reason.code() in _FENCED:
            return OwnershipLost(f"{name}: {what}: a newer producer with the same id has taken over ({reason.name()})")
        if reason.code() in _MOVED:
            return OwnershipLost(f"{name}: {what}: the group has moved on without this member ({reason.name()})")
        found = super()._explain(what, reason)
        return _Passing(str(found)) if reason.retriable() and not reason.fatal() else found


class _Passing(BrokerError):
    """The client says that the call may be repeated."""
