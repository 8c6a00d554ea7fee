"""A consumer group's coordinator: members, generations, who reads what, committed offsets. Not safe for threads by itself.

A member is told one `Move` at a time, from within its own polls; the coordinator waits where a real one would:

- **eager**: everybody gives everything back, then joins; the next generation begins when the last has joined.
- **cooperative**: everybody joins with what it holds; what must move is revoked from its holder, and given to its new one in
  the round after that.
- **consumer** (KIP-848): no rounds. Members are told their target at any time, and get a partition once its holder let go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from consumers.brokers.memory.assignment import assign
from consumers.brokers.protocol import Partitions
from consumers.errors import BrokerError
from consumers.membership import GroupSettings
from consumers.types import Positions, TopicPartition

SESSION_SECONDS = 45.0
NONE: Partitions = frozenset()


class Kind(Enum):
    """What a member must do next."""

    ASSIGN = "take"
    REVOKE = "give back"
    LOSE = "forget"


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a member's: which partitions come or go."""

    kind: Kind
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """What a transactional producer needs to commit for a member."""

    group: str
    member: str
    generation: int


@dataclass(eq=False, slots=True)
class Member:
    """One member as the coordinator knows it. Seconds are of the clock's monotonic time."""

    id: str
    topic: str
    settings: GroupSettings
    generation: int = -1
    owned: Partitions = NONE
    target: Partitions = NONE
    offered: Partitions = NONE  # it was told to take these, and is at it
    heard: float = 0.0
    silent_since: float | None = None
    unaware: int = 0
    told: bool = True
    joined: bool = False
    again: bool = False
    replaced: bool = False

    def expired(self, now: float) -> bool:
        """Whether its session, or its time between two polls, is over.

        A static member that does not poll only stops its heartbeats, so its session comes on top.
        """
        session = self.settings.session_seconds or SESSION_SECONDS
        if self.silent_since is not None and now - self.silent_since >= session:
            return True
        return now - self.heard >= self.settings.max_poll_seconds + (session if self.instance else 0.0)

    @property
    def protocol(self) -> str:
        """How its group rebalances."""
        return self.settings.protocol

    @property
    def instance(self) -> str | None:
        """What makes it a static member."""
        return self.settings.instance_id


@dataclass(slots=True)
class Group:
    """One group. `count` says how many partitions a topic has now."""

    name: str
    count: Callable[[str], int]
    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    preparing: bool = False
    _seen: dict[str, int] = field(default_factory=dict)

    def join(self, member: Member, now: float) -> None:
        """A member comes. One with the instance id of another takes over from it, with its partitions and without a round."""
        if any(other.protocol != member.protocol for other in self.members.values()):
            raise BrokerError(
                f"group '{self.name}': a member with the protocol '{member.protocol}' cannot join, the others use another one. "
                "Nothing was read. Stop all members, then start them with the same protocol."
            )
        self.expire(now)
        member.heard = now
        before = next((m for m in self.members.values() if member.instance and m.instance == member.instance), None)
        self.members[member.id] = member
        if before is None:
            self.rebalance()
            member.joined = self.preparing
            self._complete()
            return
        del self.members[before.id]
        before.replaced = True
        member.target = before.target
        member.told, member.generation = False, self.generation
        if before.again or not before.told:
            # What the other had still to give back, or had just given back, would be nobody's.
            self.rebalance()

    def leave(self, member: Member, now: float) -> None:
        """A member goes. A static one is expected back until its session ends."""
        if self.members.get(member.id) is not member:
            return
        if member.instance is not None:
            member.silent_since = now
            return
        self.expel(member)

    def expel(self, member: Member, unaware: int = 0) -> None:
        """Take a member out. It finds out by its next poll, or after `unaware` more."""
        if self.members.pop(member.id, None) is not None:
            member.unaware = unaware
            self.rebalance()

    def heartbeat(self, member: Member, now: float) -> None:
        """A member polls: who did not for too long is out, and a topic that has grown is dealt out anew."""
        self.expire(now)
        member.heard, member.silent_since = now, None
        if self.members.get(member.id) is member and any(self.count(t) != n for t, n in self._seen.items()):
            self.rebalance()

    def expire(self, now: float) -> None:
        """Take out every member whose time is over."""
        for member in [m for m in self.members.values() if m.expired(now)]:
            self.expel(member)

    def rebalance(self) -> None:
        """Deal the partitions out anew."""
        self._seen = {topic: self.count(topic) for topic in {m.topic for m in self.members.values()}}
        members = list(self.members.values())
        if any(m.protocol == "consumer" for m in members):
            self.generation += 1
            for member in members:
                member.generation, member.told = self.generation, False
            self._deal()
            return
        self.preparing = bool(members)
        for member in members:
            # A cooperative client joins the next round by itself; an eager one has partitions to give back first.
            ready = member.protocol == "cooperative" and member.silent_since is None and not member.again
            member.joined = member.joined or (ready and member.told and member.generation >= 0)
        self._complete()

    def next_move(self, member: Member) -> Move | None:
        """What the member has to do now; None when there is nothing. Every move is followed by `moved`."""
        if member.replaced:
            raise BrokerError(
                f"group '{self.name}': another member has joined with the instance id '{member.instance}', so this one is out. "
                "What is committed is safe. Give every member an instance id of its own."
            )
        if self.members.get(member.id) is not member:
            if member.unaware:
                member.unaware -= 1
                return None
            return Move(Kind.LOSE, member.owned)
        if not member.told:
            return self._told(member)
        if not self.preparing or member.joined:
            return None
        if member.protocol == "eager" and member.owned:
            return Move(Kind.REVOKE, member.owned)
        member.joined = True
        self._complete()
        return None if member.told else self._told(member)

    def moved(self, member: Member, move: Move) -> None:
        """A member has done what `next_move` told."""
        if move.kind is not Kind.ASSIGN:
            member.owned -= move.partitions
            member.again = not member.told
            return
        member.owned |= move.partitions
        member.offered = NONE
        if self.members.get(member.id) is not member:
            return
        member.told = member.protocol != "consumer" or member.owned == member.target
        if member.again and member.protocol == "cooperative":
            member.again = False
            self.rebalance()

    def knows(self, member: str, generation: int) -> bool:
        """Whether a commit with this generation is a present member's. A group without members takes any."""
        if generation < 0:
            return not self.members
        known = self.members.get(member)
        return known is not None and known.generation == generation

    def commit(self, positions: Positions) -> None:
        """Take next offsets in."""
        self.offsets.update(positions)

    def forget(self, topic: str) -> None:
        """A topic was deleted: nothing is committed for one of the same name."""
        self.offsets = {tp: offset for tp, offset in self.offsets.items() if tp.topic != topic}

    def _told(self, member: Member) -> Move | None:
        if gone := member.owned - member.target:
            return Move(Kind.REVOKE, gone)
        added = member.target - member.owned
        if member.protocol != "consumer":
            return Move(Kind.ASSIGN, added)
        held = NONE.union(*(m.owned | m.offered for m in self.members.values() if m is not member))
        if not added - held and member.target:
            return None
        member.offered = added - held
        return Move(Kind.ASSIGN, member.offered)

    def _complete(self) -> None:
        """Begin the next generation, once everybody has joined."""
        members = self.members.values()
        if not self.preparing or not all(m.joined for m in members):
            return
        self.preparing = False
        self.generation += 1
        for member in members:
            member.generation, member.joined, member.told = self.generation, False, False
        self._deal()

    def _deal(self) -> None:
        for topic, count in self._seen.items():
            every = [TopicPartition(topic, p) for p in range(count)]
            readers = {m.id: m for m in self.members.values() if m.topic == topic}
            # An eager member holds nothing by now; what it had in the last round is what it would like back.
            targets = assign(every, {i: m.target if m.protocol == "eager" else m.owned for i, m in readers.items()})
            for name, member in readers.items():
                held = NONE.union(*(m.owned for m in readers.values() if m is not member))
                cooperative = member.protocol == "cooperative"
                member.target = targets[name] - held if cooperative else targets[name]
