"""The two ways to come by partitions of a real cluster: as a member of a group, or by naming them.

They know offsets and partitions, and nothing of tables.
"""

import logging
import math
import random
import struct
from collections.abc import Callable, Collection
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from consumers.brokers.failures import describe
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import Partitions
from consumers.brokers.reader import _TIMEOUT, KafkaReader, _offsets, _ours, _theirs
from consumers.clock import Clock
from consumers.errors import BrokerError
from consumers.membership import GroupSettings
from consumers.metrics import Metrics
from consumers.types import Positions, RecordBatch, TopicPartition

log = logging.getLogger(__name__)

_COMMIT_LATER = (KafkaError.STALE_MEMBER_EPOCH, KafkaError.REBALANCE_IN_PROGRESS)
_METADATA = b"CGMDv2:"
_GROUP_ERRORS = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE)


class KafkaGroupMember(KafkaReader):
    """`BrokerConsumer` as a member of a consumer group, under any of its protocols."""

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        group: str,
        client_id: str,
        clock: Clock | None = None,
        *,
        settings: GroupSettings | None = None,
        metrics: Metrics | None = None,
        chance: random.Random | None = None,
    ) -> None:
        super().__init__(options, topic, client_id, clock, metrics, chance)
        self._settings = settings or GroupSettings()
        self._failure: BaseException | None = None
        self._answered = False
        self._consumer = self._connect(options.member(group, client_id, self._settings, self._callbacks.settings()))

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """As every reader; rebalances happen in here."""
        batch = super().poll(max_records, timeout)
        if self._settings.protocol == "consumer" and not self._answered:
            self._hear_of_nothing()
        return batch

    def commit(self, positions: Positions, wait: bool = False) -> None:
        """Commit group offsets. With `wait`, once the coordinator has answered, or has not for a while."""
        if not positions:
            return
        try:
            if wait:
                self._ask("commit", partial(self._consumer.commit, offsets=_theirs(positions), asynchronous=False), _COMMIT_LATER)
            else:
                self._consumer.commit(offsets=_theirs(positions), asynchronous=True)
        except (KafkaException, BrokerError) as error:
            log.warning("group offsets of %s were not committed: %s", self._topic, describe(error))

    def group_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Committed offsets of the group; partitions without one are absent."""
        asked = _theirs(dict.fromkeys(partitions, 0))
        answer = self._ask("tell the group's committed offsets", partial(self._consumer.committed, asked, _TIMEOUT))
        return {tp: offset for tp, offset in _offsets(answer).items() if offset >= 0}

    def group_metadata(self) -> object:
        """The client's own."""
        return self._consumer.consumer_group_metadata()

    def _begin(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda _, tps: self._guarded(self._on_assign, _ours(tps)),
            on_revoke=lambda _, tps: self._guarded(self._on_revoke, _ours(tps)),
            on_lost=lambda _, tps: self._guarded(self._on_lost, _ours(tps)),
        )

    def _begin_again(self) -> None:
        self._consumer.unsubscribe()
        self._begin()

    def _guarded(self, react: Callable[[Partitions], None], partitions: Partitions) -> None:
        """Run a rebalance callback; what it raises travels through `poll`, not through the client."""
        self._moved = True
        try:
            react(partitions)
        except BaseException as error:  # noqa: BLE001 - raised again by poll(), on the same thread
            self._failure = self._failure or error

    def _on_assign(self, partitions: Partitions) -> None:
        self._joining, self._answered = False, True
        if self._listener is None:
            return
        starts = self._listener.assigned(partitions)
        if partitions:
            eager = self._settings.protocol == "eager"
            self._take(starts, self._consumer.assign if eager else self._consumer.incremental_assign)

    def _on_revoke(self, partitions: Partitions) -> None:
        if self._listener is not None and partitions:
            self._listener.revoked(partitions)
        self._forget(partitions)

    def _on_lost(self, partitions: Partitions) -> None:
        if self._listener is not None and partitions:
            self._listener.lost(partitions)
        self._forget(partitions)

    def _hear_of_nothing(self) -> None:
        """Under KIP-848 the client is silent when the group has answered and has no partitions for us."""
        if self._listener is not None and _generation(self._consumer.consumer_group_metadata()) > 0:
            self._answered = True
            self._listener.assigned(frozenset())

    def _raise_failures(self) -> None:
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        super()._raise_failures()


class KafkaAssignment(KafkaReader):
    """`BrokerConsumer` of partitions that are named, or of all, without a group: nobody else is kept from reading them."""

    def __init__(
        self,
        options: KafkaOptions,
        topic: str,
        client_id: str,
        partitions: Collection[int] | None = None,
        clock: Clock | None = None,
        *,
        rack: str | None = None,
        refresh_seconds: float = 30.0,
        metrics: Metrics | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Without `partitions` it reads all, and looks for new ones every `refresh_seconds`."""
        if partitions is not None and not partitions:
            raise ValueError(f"topic '{topic}': no partitions were named; leave them out to read all")
        super().__init__(options, topic, client_id, clock, metrics, chance)
        self._named = None if partitions is None else frozenset(TopicPartition(topic, p) for p in partitions)
        self._refresh_seconds = refresh_seconds
        self._look_at = -math.inf
        self._anew = False
        settings = options.reader(client_id, self._callbacks.settings())
        # The client wants a group's name even so; it joins none.
        self._consumer = self._connect({**settings, "group.id": client_id} | ({"client.rack": rack} if rack else {}))

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """As for a member; partitions are handed to the listener first."""
        if self._anew:
            self._give_back()
        if self._listener is not None and self._clock.monotonic() >= self._look_at:
            self._look_for_partitions()
        return super().poll(max_records, timeout)

    def commit(self, positions: Positions, wait: bool = False) -> None:
        """Nothing: there is no group."""

    def group_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """None: there is no group."""
        return {}

    def group_metadata(self) -> object:
        """Raises `BrokerError`: there is no group whose offsets a transaction could commit."""
        raise BrokerError(f"topic '{self._topic}' is read without a group, so no group's offsets can go into a transaction")

    def close(self) -> None:
        """Let go of all partitions; the listener hears of it."""
        try:
            if not self._closed and self._next:
                self._give_back()
        finally:
            super().close()

    def _begin(self) -> None:
        self._look_at = -math.inf

    def _begin_again(self) -> None:
        self._anew = True

    def _give_back(self) -> None:
        self._anew = self._joining = False
        gone = frozenset(self._next)
        if self._listener is not None:
            self._listener.revoked(gone)
        self._consumer.unassign()
        self._forget(gone)
        self._look_at = -math.inf

    def _look_for_partitions(self) -> None:
        self._look_at = self._clock.monotonic() + self._refresh_seconds
        new = self._wanted() - self._next.keys()
        if new and self._listener is not None:
            self._take(self._listener.assigned(new), self._consumer.incremental_assign)

    def _wanted(self) -> Partitions:
        if self._named is not None and self._next:
            return self._named
        try:
            there = self.partitions()
        except BrokerError as error:
            if not self._next:
                raise
            log.warning("whether topic %s has new partitions is not known: %s", self._topic, error)
            return frozenset()
        if self._named is not None and (missing := self._named - there):
            named = ", ".join(str(tp.partition) for tp in sorted(missing))
            raise BrokerError(f"topic '{self._topic}' has no partition {named}: it has 0 to {len(there) - 1}. Name those only.")
        return there if self._named is None else self._named

    def _heed(self, event: Message) -> None:
        error = event.error()
        if error is None or error.code() not in _GROUP_ERRORS:
            super()._heed(event)


def _generation(metadata: bytes) -> int:
    """The generation (member epoch) in the client's serialized group metadata; 0 before the group has answered."""
    if not metadata.startswith(_METADATA):
        return 0
    return int(struct.unpack_from("=i", metadata, len(_METADATA))[0])
