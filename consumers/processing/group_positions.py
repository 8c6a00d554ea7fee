"""Kafka's own group offsets as the truth: positions for chains that end in `CommitPositions`, beside no data of ours.

There is no compare-and-set among a group's offsets, and there are no epochs: the group's coordinator refuses commits of members
that it has put out, which is what keeps a zombie from moving positions back. Only where `start` is `latest` or a time does the
first member pin the starts of partitions that others get, too; one that stalls between looking and pinning may set another back.
"""

import logging
from collections.abc import Iterable, Mapping

from consumers.brokers.protocol import BrokerConsumer
from consumers.clock import Clock, SystemClock
from consumers.errors import BrokerError, OwnershipLost
from consumers.processing.incarnation import Incarnation
from consumers.processing.starts import Start
from consumers.types import Position, TopicPartition, topic_hash

log = logging.getLogger(__name__)


class GroupPositions:
    """A `PositionStore` over the group that `broker` is a member of.

    Kafka forgets the offsets of a deleted topic itself, so a topic that was created again begins anew; the engine asks for the
    topic's id before it commits, so that a member that went on reading meanwhile does not commit old offsets. A loss that the
    definition lets pass is logged; a group has no place for it.
    """

    fences = False

    def __init__(self, broker: BrokerConsumer, clock: Clock | None = None) -> None:
        self._broker = broker
        self._incarnation = Incarnation(broker.topic_id, clock or SystemClock())
        self._topic_id = ""

    def group_metadata(self) -> object:
        """What a transaction needs to commit this group's offsets, for `ProduceInTransaction`.

        Raises `OwnershipLost` where the topic was created again since its partitions were taken over: offsets of the old one
        would skip the beginning of the new.
        """
        self._incarnation.require(self._topic_id)
        return self._broker.group_metadata()

    def positions(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Position]:
        asked = frozenset(partitions)
        offsets = self._broker.group_offsets(asked)
        return {tp: Position(offsets.get(tp), epoch=0) for tp in asked}

    def known_topic(self, topic: str) -> int | None:
        """None until the group has an offset of any partition; then the hash of no id, as groups keep none."""
        return topic_hash("") if self._broker.group_offsets(self._broker.partitions()) else None

    def acquire(self, seen: Mapping[TopicPartition, Position], starts: Mapping[TopicPartition, Start], topic_id: str) -> None:
        """Commit the starts that differ from what was seen, also of partitions that others will get."""
        self._topic_id = topic_id
        now = self.positions(seen)
        if moved := sorted(tp for tp in seen if now[tp].offset != seen[tp].offset):
            raise OwnershipLost(f"the group's offsets of {', '.join(map(str, moved))} moved during the takeover")
        for tp, start in sorted(starts.items()):
            if start.lost is not None:
                log.warning(
                    "%s: offsets %d to %d are gone; going on from %d", tp, start.lost.start, start.lost.end - 1, start.offset
                )
        if new := {tp: start.offset for tp, start in starts.items() if start.offset != seen[tp].offset}:
            self._broker.commit(new, wait=True)
            self._require(new)

    def _require(self, starts: Mapping[TopicPartition, int]) -> None:
        """A commit that fails is only logged; a start that nobody remembers would be another one next time."""
        try:
            self._broker.group_metadata()
        except BrokerError:
            return  # there is no group, and nothing is remembered
        kept = self._broker.group_offsets(frozenset(starts))
        if lacking := sorted(tp for tp, offset in starts.items() if kept.get(tp) != offset):
            raise OwnershipLost(f"the group did not take the starts of {', '.join(map(str, lacking))}")

    def release(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is held."""
