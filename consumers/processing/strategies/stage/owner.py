"""A member's ownership of partitions in a consumer's two tables: the `PositionStore` of staged tables."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.processing.starts import Start
from consumers.staging import positions as ids
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.failures import taking_over
from consumers.staging.follow import follow
from consumers.staging.log import StagedCommit
from consumers.staging.schema import schema_id
from consumers.staging.staged import StagedTable
from consumers.types import Position, TopicPartition


@dataclass(frozen=True, slots=True)
class Hold:
    """A partition that is ours: its epoch, and the name of its log's incarnation."""

    epoch: int
    label: str

    @property
    def topic_id(self) -> str:
        """The id of the topic that it was taken over from; empty where the brokers know none."""
        return ids.topic_id_of(self.label)


class Owner:
    """Takes partitions over. It has its own view of the tables, so that it never waits for a commit under way."""

    fences = True

    def __init__(
        self, consumer: Consumer, member: str, clock: Clock, on_loss: Callable[[StagedCommit], None] = lambda takeover: None
    ) -> None:
        """`member` names this process in the table's log; `on_loss` hears of a takeover that found offsets lost."""
        self._consumer = consumer
        self.member = member
        self._on_loss = on_loss
        self._clock = clock
        with taking_over(consumer):
            self._staged = StagedTable(consumer, clock)
            self._dead_letters = DeadLetterTable(consumer, clock)
        self._holds: Mapping[TopicPartition, Hold] = {}

    @property
    def holds(self) -> Mapping[TopicPartition, Hold]:
        """What is held now. Never changed in place, so that the committing thread may look at any time."""
        return self._holds

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Where the staged table stands now. Where somebody restored it to an older version, the positions follow first.

        Raises `OwnershipLost` when another member is just doing so, and `StorageError`.
        """
        wanted = frozenset(partitions)
        with taking_over(self._consumer):
            found = self._staged.positions(wanted)
            if (restored := self._staged.restored()) is None:
                return found
            follow(self._consumer, restored, self._staged, self._dead_letters, self.member, self._clock)
            return self._staged.positions(wanted)

    def known_topic(self, topic: str) -> int | None:
        """The hash of the topic's id that those positions belong to."""
        return self._staged.known_topic(topic)

    def acquire(self, seen: Mapping[TopicPartition, Position], starts: Mapping[TopicPartition, Start], topic_id: str) -> None:
        """Take partitions over in both tables. Raises `OwnershipLost` when another is doing the same, `StorageError`."""
        takeover = StagedCommit(
            commit_id=uuid.uuid4().hex,
            kind="acquire",
            consumer=self._consumer.name,
            member=self.member,
            topic_ids={self._consumer.config.topic: topic_id},
            starts={tp: start.offset for tp, start in starts.items()},
            lost={tp: start.lost for tp, start in starts.items() if start.lost is not None},
            schema_id=schema_id(self._consumer.config.columns),
        )
        cut = frozenset(tp for tp, start in starts.items() if start.cut)
        with taking_over(self._consumer):
            taken, takeover = self._staged.acquire(seen, takeover, cut, self._dead_letters.epochs(seen))
            # Tentative is what stands at or past the position before this takeover, also where offsets were lost since.
            stood = {
                tp: replace(new, offset=new.offset if seen[tp].offset is None else seen[tp].offset) for tp, new in taken.items()
            }
            self._dead_letters.acquire(stood, {tp: label_of(topic_id, then) for tp, then in seen.items()})
        self._holds = {**self._holds, **{tp: Hold(new.epoch, label_of(topic_id, new)) for tp, new in taken.items()}}
        if takeover.lost:
            self._on_loss(takeover)

    def release(self, partitions: frozenset[TopicPartition]) -> None:
        """These are not ours any longer."""
        self._holds = {tp: hold for tp, hold in self._holds.items() if tp not in partitions}


def label_of(topic_id: str, position: Position) -> str:
    """What the rows that are staged from there on have in `_topic_id`: which incarnation of the partition's log they are of."""
    return ids.label(topic_id, position.cut)
