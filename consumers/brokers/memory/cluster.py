"""An in-memory Kafka cluster: topics, groups, transactions, faults. What talks to it is this package's own clients."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from consumers.brokers.memory.faults import Call, Faults
from consumers.brokers.memory.group import Group, GroupMetadata, Member
from consumers.brokers.memory.log import Draft, Entry, LogSettings, PartitionLog, Writer
from consumers.brokers.memory.transactions import Transactions
from consumers.clock import Clock, SystemClock
from consumers.errors import BrokerError, OwnershipLost
from consumers.types import Positions, TopicPartition, Watermarks

T = TypeVar("T")

_AGAIN_SECONDS = 0.1


@dataclass(slots=True)
class Topic:
    """One incarnation of a topic."""

    id: str
    settings: LogSettings
    logs: list[PartitionLog]


class MemoryCluster:
    """A cluster in this process. Safe for threads; time is the clock's alone.

    With a `ManualClock` nothing ever waits: a poll without records returns at once, and sessions, retention and transaction
    timeouts pass when the test advances the clock. Without `topic_ids` it is a cluster too old to have any.
    """

    def __init__(self, clock: Clock | None = None, *, topic_ids: bool = True) -> None:
        self.clock: Clock = clock or SystemClock()
        self.changed = threading.Condition(threading.RLock())
        self.faults = Faults()
        self._topic_ids = topic_ids
        self._topics: dict[str, Topic] = {}
        self._groups: dict[str, Group] = {}
        self._made = 0
        self._joined = 0
        self.transactions = Transactions(lambda group, positions: self.group(group).commit(positions))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic. Of its configuration, what `LogSettings` lists is obeyed. Raises `BrokerError` when it exists."""
        with self.changed:
            if name in self._topics:
                raise BrokerError(f"topic '{name}' exists already; delete it first, or use another name")
            self._made += 1
            settings = LogSettings.of(config or {})
            self._topics[name] = Topic(
                f"{name}-{self._made}" if self._topic_ids else "", settings, [PartitionLog(settings) for _ in range(partitions)]
            )
            self.changed.notify_all()

    def topics(self) -> list[str]:
        """The names of all topics."""
        with self.changed:
            return sorted(self._topics)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and what groups have committed for it."""
        with self.changed:
            self.topic(name)
            del self._topics[name]
            for group in self._groups.values():
                group.forget(name)
            self.changed.notify_all()

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic; groups notice with their next poll."""
        with self.changed:
            topic = self.topic(name)
            if total <= len(topic.logs):
                raise BrokerError(f"topic '{name}' has {len(topic.logs)} partitions already; it can only grow past that")
            topic.logs += [PartitionLog(topic.settings) for _ in range(total - len(topic.logs))]
            self.changed.notify_all()

    def delete_records(self, before: Positions) -> None:
        """Move log starts; -1 is the end."""
        with self.changed:
            for tp, offset in before.items():
                log = self.log(tp)
                if offset > log.end:
                    raise BrokerError(f"{tp}: there is no offset {offset} to delete up to, the log ends at {log.end}")
                log.delete_before(log.end if offset < 0 else offset)

    def cut_log(self, tp: TopicPartition, end: int) -> None:
        """Lose a partition's records from `end` on, as an unclean leader election does; the offsets are given out again."""
        with self.changed:
            self.log(tp).cut(end)

    def compact(self, name: str) -> None:
        """Compact a topic with `cleanup.policy=compact` now; a real cluster does so when it sees fit."""
        with self.changed:
            topic = self.topic(name)
            if not topic.settings.compact:
                raise BrokerError(f"topic '{name}' is not compacted; create it with cleanup.policy=compact")
            for log in topic.logs:
                log.compact(self.now_ms())

    def rebalance(self, group: str) -> None:
        """Make a group deal its partitions out anew."""
        with self.changed:
            self.group(group).rebalance()
            self.changed.notify_all()

    def topic(self, name: str) -> Topic:
        """A topic as it is now. Raises `BrokerError` when there is none."""
        found = self._topics.get(name)
        if found is None:
            raise BrokerError(f"topic '{name}' does not exist. Nothing was read or written. Create it, or mend the name.")
        return found

    def log(self, tp: TopicPartition) -> PartitionLog:
        """A partition's log, after retention and after transactions that were open for too long were aborted."""
        logs = self.topic(tp.topic).logs
        if tp.partition >= len(logs):
            raise BrokerError(f"{tp} does not exist, the topic has {len(logs)} partitions")
        self.transactions.expire(self.clock.monotonic(), self.now_ms)
        log = logs[tp.partition]
        if log.settings.forgets:
            log.retain(self.now_ms())
        return log

    def count(self, topic: str) -> int:
        """How many partitions a topic has; 0 where there is none."""
        found = self._topics.get(topic)
        return len(found.logs) if found else 0

    def every(self, topic: str) -> frozenset[TopicPartition]:
        """All partitions of a topic."""
        return frozenset(TopicPartition(topic, p) for p in range(len(self.topic(topic).logs)))

    def group(self, name: str) -> Group:
        """A group; made by whoever asks for it first."""
        return self._groups.setdefault(name, Group(name, self.count))

    def watermarks(self, tp: TopicPartition, committed: bool) -> Watermarks:
        """What a partition holds, for a reader of committed transactions or for any."""
        log = self.log(tp)
        return Watermarks(log.start, max(log.start, log.stable) if committed else log.end)

    def now_ms(self) -> int:
        """Wall time."""
        return int(self.clock.time() * 1000)

    def append(self, tp: TopicPartition, drafts: Sequence[Draft], writer: Writer | None, sequence: int, name: str | None) -> int:
        """Write records, within the open transaction of the transactional id `name` where there is one; the first's offset."""
        log = self.log(tp)
        if writer is not None and name is not None:
            self.transactions.writes(name, writer, tp, log)
        offset = log.append(drafts, self.now_ms(), writer, sequence)
        self.changed.notify_all()
        return offset

    def send_offsets(self, name: str, writer: Writer, positions: Positions, metadata: GroupMetadata) -> None:
        """Put a group's offsets into a transaction, unless the member is of an older generation by now."""
        group = self.group(metadata.group)
        group.expire(self.clock.monotonic())
        if not group.knows(metadata.member, metadata.generation):
            raise OwnershipLost(
                f"group '{metadata.group}': the member's generation {metadata.generation} is over, others have its partitions "
                "now. Abort the transaction; whoever has the partitions reads the records again."
            )
        self.transactions.offsets(name, writer, metadata.group, positions)

    def set_offsets(self, group: str, positions: Positions) -> bool:
        """Commit for a group from outside of it, which only one without members allows."""
        known = self.group(group)
        known.expire(self.clock.monotonic())
        if known.members:
            return False
        for tp in positions:
            self.log(tp)
        known.commit(positions)
        return True

    def records(self, tp: TopicPartition) -> list[Entry]:
        """What a reader of committed transactions would find in a partition."""
        with self.changed:
            log = self.log(tp)
            return log.read(log.start, len(log.entries) + 1)[0]

    def members(self, group: str) -> list[Member]:
        """The present members of a group, in the order in which they joined."""
        with self.changed:
            return list(self.group(group).members.values())

    def member_id(self, client_id: str) -> str:
        """A new member's id."""
        self._joined += 1
        return f"{client_id}-{self._joined:06}"

    def call(self, call: Call, client: str, act: Callable[[], T], timeout: float = 10.0) -> T:
        """Do something for a client, as faults allow: tried again while it fails transiently, for `timeout` seconds."""
        deadline = self.clock.monotonic() + timeout
        while True:
            with self.changed:
                fault = self.faults.take(call, client)
            if fault is not None and fault.seconds:
                self.clock.sleep(fault.seconds)
            if fault is None or fault.fails == "no":
                with self.changed:
                    return act()
            if fault.effect:
                with self.changed:
                    act()
            if fault.fails == "fatal" or self.clock.monotonic() >= deadline:
                raise BrokerError(f"the cluster refused '{call}' to client '{client}', as the test ordered")
            self.clock.sleep(_AGAIN_SECONDS)
