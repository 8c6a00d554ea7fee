"""A consumer of the in-memory cluster: as a group member, or of partitions that it was told."""

import logging
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from consumers.brokers.memory.cluster import MemoryCluster
from consumers.brokers.memory.columns import to_columns
from consumers.brokers.memory.faults import Call
from consumers.brokers.memory.group import Group, GroupMetadata, Kind, Member, Move
from consumers.brokers.memory.log import Entry
from consumers.brokers.protocol import Partitions, RebalanceListener
from consumers.errors import BrokerError, DataLoss
from consumers.membership import GroupSettings
from consumers.types import OffsetRange, Positions, RecordBatch, TopicPartition, Watermarks

T = TypeVar("T")

log = logging.getLogger(__name__)

_REJOINS = 3
_SETTLE_SECONDS = 10.0
_AGAIN_SECONDS = 0.1


class MemoryConsumer:
    """`BrokerConsumer` on a `MemoryCluster`.

    With a `group` it is a member of it, as `settings` say; without one it reads the `partitions` that are named, or all. A member
    is out when it has not polled for `max_poll_seconds`, or was silent (see `freeze`) for its session, by the cluster's clock.
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        topic: str,
        group: str | None = None,
        client_id: str = "consumer",
        *,
        partitions: Iterable[int] | None = None,
        settings: GroupSettings | None = None,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    ) -> None:
        if group is not None and partitions is not None:
            raise ValueError(f"topic '{topic}': the members of group '{group}' are told their partitions; name none")
        self.client_id = client_id
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._named = None if partitions is None else frozenset(TopicPartition(topic, p) for p in partitions)
        if self._named is not None and not self._named:
            raise ValueError(f"topic '{topic}': no partitions were named; leave them out to read all")
        self._settings = settings or GroupSettings()
        self._committed = isolation == "read_committed"
        self._listener: RebalanceListener | None = None
        self._member: Member | None = None
        self._next: dict[TopicPartition, int] = {}
        self._highs: dict[TopicPartition, int] = {}
        self._paused = False
        self._rejoins = 0
        self._turn = 0
        with cluster.changed:
            cluster.topic(topic)

    def subscribe(self, listener: RebalanceListener) -> None:
        """Join the group, or take the partitions that were named; the listener hears of them from within `poll`."""
        self._listener = listener
        if self._group is not None:
            self._join()

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """The next records; None after `timeout` seconds without any, and when partitions came or went.

        A position that the topic no longer holds makes the member join again, so that the listener sees what is gone. Raises
        `DataLoss` when that does not help, `BrokerError` for what the cluster refuses, and whatever a listener raised.
        """
        cluster = self._cluster
        deadline = cluster.clock.monotonic() + timeout
        with cluster.changed:
            fault = cluster.faults.take("poll", self.client_id)
        if fault is not None:
            cluster.clock.sleep(fault.seconds)
            if fault.fails == "fatal":
                raise BrokerError(f"topic '{self._topic}': the cluster refused to be polled, as the test ordered")
        lame = fault is not None and fault.fails == "transient"
        while True:
            if self._rebalance():
                return None
            with cluster.changed:
                gone = self._out_of_range()
                if gone is None:
                    batch = None if lame or self._paused else self._fetch(max_records)
                    left = deadline - cluster.clock.monotonic()
                    if batch is not None or left <= 0 or not cluster.clock.wait(cluster.changed, left):
                        return batch
            if gone is not None:
                self._join_again(gone)
                return None

    def seek(self, positions: Positions) -> None:
        """Go on from these offsets. Raises `BrokerError` for a partition that is not assigned."""
        with self._cluster.changed:
            if strange := positions.keys() - self._next.keys():
                raise BrokerError(f"{min(strange)} is not assigned to this consumer, so it cannot be sought")
            self._next |= positions

    def pause(self) -> None:
        """Stop fetching; `poll` goes on keeping the membership."""
        self._paused = True

    def resume(self) -> None:
        """Fetch again."""
        self._paused = False

    def commit(self, positions: Positions, wait: bool = False) -> None:
        """Commit group offsets. A failure, and one from an older generation, costs nothing but a stale lag: it is logged."""
        if self._group is None or not positions:
            return
        try:
            self._cluster.call("commit", self.client_id, lambda: self._commit(positions), timeout=0.0)
        except BrokerError as error:
            log.warning("group offsets of %s were not committed: %s", self._topic, error)

    def watermarks(self, partitions: Partitions) -> dict[TopicPartition, Watermarks]:
        """Low and high watermarks; under read_committed, high is the last stable offset."""
        return self._call("watermarks", lambda tp: self._cluster.watermarks(tp, self._committed), partitions)

    def high_watermarks(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """High watermarks as the last fetches told; partitions not fetched yet are absent."""
        return {tp: self._highs[tp] for tp in partitions if tp in self._highs}

    def group_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """What the group has committed. Waits for open transactions that have such offsets in hand, 10 s at most."""
        if self._group is None:
            return {}
        cluster, group = self._cluster, self._group
        deadline = cluster.clock.monotonic() + _SETTLE_SECONDS
        while True:
            with cluster.changed:
                cluster.transactions.expire(cluster.clock.monotonic(), cluster.now_ms)
                if not cluster.transactions.unsettled(group, partitions):
                    break
            if cluster.clock.monotonic() > deadline:
                raise BrokerError(f"the offsets of group '{group}' wait for a transaction that does not end; try again later")
            cluster.clock.sleep(_AGAIN_SECONDS)
        known = cluster.call("group_offsets", self.client_id, lambda: dict(cluster.group(group).offsets))
        return {tp: offset for tp, offset in known.items() if tp in partitions}

    def offsets_at(self, partitions: Partitions, timestamp_ms: int) -> dict[TopicPartition, int]:
        """The first offset at or after a time, or the end where there is none."""
        return self._call("offsets_at", lambda tp: self._cluster.log(tp).offset_at(timestamp_ms), partitions)

    def partitions(self) -> Partitions:
        """All partitions that the topic has now."""
        return self._cluster.call("partitions", self.client_id, lambda: self._cluster.every(self._topic))

    def topic_id(self) -> str:
        """The id of the topic's present incarnation."""
        return self._cluster.call("topic_id", self.client_id, lambda: self._cluster.topic(self._topic).id)

    def group_metadata(self) -> GroupMetadata:
        """For `send_offsets` of a transactional producer of the same cluster."""
        if self._group is None:
            raise BrokerError(f"topic '{self._topic}' is read without a group, so no group's offsets can go into a transaction")
        member = self._member
        return GroupMetadata(self._group, member.id if member else "", member.generation if member else -1)

    def close(self) -> None:
        """Leave the group; the listener is told once more. A static member is only expected back until its session ends."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        held, member = frozenset(self._next), self._member
        with self._cluster.changed:
            ours = member is None or self._known().members.get(member.id) is member
        try:
            if held and ours:
                listener.revoked(held)
            elif held:
                listener.lost(held)
        finally:
            self._next.clear()
            with self._cluster.changed:
                if member is not None:
                    member.owned = frozenset()
                    self._known().leave(member, self._cluster.clock.monotonic())
                self._cluster.changed.notify_all()

    def expel(self, unaware_polls: int = 0) -> None:
        """The coordinator takes this member out of its group, as after a lost session.

        It finds out by its next poll, or, as a process that was frozen can, only after `unaware_polls` more: until then it goes
        on reading partitions that are others' already.
        """
        with self._cluster.changed:
            if self._member is not None:
                self._known().expel(self._member, unaware_polls)
                self._cluster.changed.notify_all()

    def freeze(self) -> None:
        """Heartbeats stop, as in a process that is stopped or dead, until the next poll. After the session the member is out."""
        with self._cluster.changed:
            if self._member is not None:
                self._member.silent_since = self._cluster.clock.monotonic()

    def _known(self) -> Group:
        return self._cluster.group(self._group or "")

    def _call(self, call: Call, ask: Callable[[TopicPartition], T], partitions: Partitions) -> dict[TopicPartition, T]:
        return self._cluster.call(call, self.client_id, lambda: {tp: ask(tp) for tp in sorted(partitions)})

    def _commit(self, positions: Positions) -> None:
        """Raises `BrokerError` for a member that the group no longer has, or not in this generation."""
        group, metadata = self._known(), self.group_metadata()
        group.expire(self._cluster.clock.monotonic())
        if not group.knows(metadata.member, metadata.generation):
            raise BrokerError(f"group '{self._group}' has a newer generation than this member's {metadata.generation}")
        group.commit(positions)

    def _join(self) -> None:
        with self._cluster.changed:
            self._member = Member(self._cluster.member_id(self.client_id), self._topic, self._settings)
            self._known().join(self._member, self._cluster.clock.monotonic())
            self._cluster.changed.notify_all()

    def _rebalance(self) -> bool:
        """Do everything that the group asks for now. Whether the listener was told of something."""
        told = False
        while (move := self._move()) is not None:
            told = self._do(move) or told
        return told

    def _move(self) -> Move | None:
        if self._listener is None:
            return None
        with self._cluster.changed:
            member = self._member
            if member is None:
                there = self._cluster.every(self._topic)
                if self._named is not None and (missing := self._named - there):
                    raise BrokerError(f"{min(missing)} does not exist, the topic has {len(there)} partitions. Name those only.")
                new = (there if self._named is None else self._named) - self._next.keys()
                return Move(Kind.ASSIGN, new) if new else None
            group = self._known()
            group.heartbeat(member, self._cluster.clock.monotonic())
            return group.next_move(member)

    def _do(self, move: Move) -> bool:
        """Tell the listener, then the group. Whether there was something to tell."""
        listener, member = self._listener, self._member
        assert listener is not None
        if move.kind is Kind.ASSIGN:
            self._next |= listener.assigned(move.partitions)
        elif move.partitions:
            (listener.revoked if move.kind is Kind.REVOKE else listener.lost)(move.partitions)
            self._forget(move.partitions)
        if member is None:
            return True
        with self._cluster.changed:
            self._known().moved(member, move)
            self._cluster.changed.notify_all()
        if move.kind is Kind.LOSE:
            self._join()
        return move.kind is Kind.ASSIGN or bool(move.partitions)

    def _forget(self, partitions: Partitions) -> None:
        self._next = {tp: offset for tp, offset in self._next.items() if tp not in partitions}

    def _out_of_range(self) -> TopicPartition | None:
        if self._paused or not self._next:
            return None
        if self._cluster.faults.take("fetch", self.client_id):
            return min(self._next)
        return next((tp for tp, offset in self._next.items() if not self._cluster.log(tp).holds(offset)), None)

    def _join_again(self, tp: TopicPartition) -> None:
        """Give all partitions back and join anew: whoever is then asked where to start finds out what is gone."""
        self._rejoins += 1
        if self._rejoins > _REJOINS:
            raise DataLoss(
                f"{tp}: offset {self._next[tp]} is not in the topic any more, although its watermarks say so. What is committed "
                "is safe. Look at the health of the partition's replicas, then start again."
            )
        log.warning("%s: offset %s is not in the topic any more; joining again to see what is gone", tp, self._next[tp])
        if self._listener is not None:
            self._listener.revoked(frozenset(self._next))
        self._next.clear()
        if self._member is not None:
            with self._cluster.changed:
                self._known().expel(self._member)
                self._cluster.changed.notify_all()
            self._join()

    def _fetch(self, max_records: int) -> RecordBatch | None:
        """Records of all partitions, a fair share each, and every offset that was passed."""
        order = sorted(self._next)
        first = self._turn % len(order) if order else 0
        self._turn += 1
        entries: dict[TopicPartition, list[Entry]] = {}
        ranges, left = {}, max_records
        for i, tp in enumerate(order[first:] + order[:first]):
            if left <= 0:
                break
            source = self._cluster.log(tp)
            entries[tp], reached = source.read(self._next[tp], -(-left // (len(order) - i)), self._committed)
            self._highs[tp] = source.end
            left -= len(entries[tp])
            if reached > self._next[tp]:
                ranges[tp] = OffsetRange(self._next[tp], reached)
        if not ranges:
            return None
        self._rejoins = 0
        self._next |= {tp: step.end for tp, step in ranges.items()}
        return RecordBatch(self._topic, to_columns(entries), ranges)
