"""Taking partitions over: where they stand, where to start, what is lost, and the compare-and-set that makes them ours."""

import logging
from collections.abc import Mapping
from datetime import datetime

from consumers.brokers.protocol import BrokerConsumer, Partitions
from consumers.errors import FatalError, OwnershipLost, within
from consumers.processing.context import Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.positions import PositionStore
from consumers.processing.starts import Start, start_of
from consumers.processing.subscription import Subscription
from consumers.types import Position, Positions, TopicPartition, Watermarks, topic_hash

log = logging.getLogger(__name__)

_ATTEMPTS = 6


class Takeover:
    """Makes partitions this member's own."""

    def __init__(self, subscription: Subscription, broker: BrokerConsumer, store: PositionStore, around: Surroundings) -> None:
        self._subscription = subscription
        self._broker = broker
        self._store = store
        self._around = around
        self._incarnation = Incarnation(broker.topic_id, around.clock)
        self._topic_id = ""

    def take(self, partitions: Partitions) -> tuple[Positions, Positions]:
        """Take partitions over. Returns where to start each, and its high watermark.

        Raises `DataLoss` where offsets are gone, and `FatalError` when others take the same partitions again and again.
        """
        for attempt in range(_ATTEMPTS - 1):
            try:
                return self._take(partitions)
            except OwnershipLost as error:
                log.info("%s: taking over again (%d): %s", self._subscription.name, attempt + 1, error)
                self._around.clock.sleep(self._around.random.uniform(0, 0.1 * 2**attempt))
        try:
            return self._take(partitions)
        except OwnershipLost as error:
            # Going on would leave partitions with this member that it never reads.
            raise FatalError(
                f"consumer {self._subscription.name}: could not take {', '.join(map(str, sorted(partitions)))} over in "
                f"{_ATTEMPTS} attempts ({within(error)}). Nothing was lost or written twice. Look for a second deployment "
                "with the same consumer, or start again."
            ) from error

    def require_topic(self) -> None:
        """Raise `OwnershipLost` where positions that nothing fences are of a topic that was created again since."""
        if not self._store.fences:
            self._incarnation.require(self._topic_id)

    def require_unmoved(self, positions: Positions) -> None:
        """Raise `OwnershipLost` where somebody has set a position back behind what was committed here.

        A commit would notice, too; but a member that is caught up has nothing to commit, and would never read anything again.
        """
        if self._store.fences:
            for tp, now in self._store.positions(positions).items():
                if now.offset is not None and now.offset < positions[tp]:
                    raise OwnershipLost(f"{tp}: the position was set back from {positions[tp]} to {now.offset}")

    def _take(self, ours: Partitions) -> tuple[Positions, Positions]:
        topic = self._subscription.topic
        topic_id = self._broker.topic_id()
        seen = self._store.positions(ours)
        known = self._store.known_topic(topic)
        # A broker that knows no ids is no evidence of another topic, neither now nor when the store was begun.
        recreated = bool(topic_id) and known not in (None, topic_hash(""), topic_hash(topic_id))
        if (known is None or recreated) and self._may_pin_others():
            # The first to meet a topic pins the start of all of its partitions, so that one that is added later is known to be
            # new and is read from its beginning, whatever `start` says.
            seen = self._store.positions(ours | self._broker.partitions())
        marks = self._broker.watermarks(frozenset(seen))
        starts = self._starts(seen, marks, recreated, known is None)
        self._store.acquire(seen, starts, topic_id)
        self._store.release(frozenset(seen) - ours)
        self._topic_id = topic_id
        return {tp: starts[tp].offset for tp in ours}, {tp: marks[tp].high for tp in ours}

    def _may_pin_others(self) -> bool:
        """Without fencing, a pin may set another member's partition back; where the start is the beginning, none is needed."""
        return self._store.fences or self._subscription.start != "earliest"

    def _starts(
        self,
        seen: Mapping[TopicPartition, Position],
        marks: Mapping[TopicPartition, Watermarks],
        recreated: bool,
        first_contact: bool,
    ) -> dict[TopicPartition, Start]:
        first: Positions = {tp: marks[tp].low for tp in seen}
        if first_contact:
            first = self._first_offsets(frozenset(seen), marks)
        record = self._subscription.on_data_loss == "record"
        return {tp: start_of(tp, position.offset, first[tp], marks[tp], recreated, record) for tp, position in seen.items()}

    def _first_offsets(self, new: Partitions, marks: Mapping[TopicPartition, Watermarks]) -> Positions:
        """Where a topic begins that the store does not know yet: where its group stood, or where the definition says."""
        start = self._subscription.start
        if start == "earliest":
            first = {tp: marks[tp].low for tp in new}
        elif start == "latest":
            first = {tp: marks[tp].high for tp in new}
        else:
            first = dict(self._broker.offsets_at(new, int(datetime.fromisoformat(start).timestamp() * 1000)))
        known = dict(self._broker.group_offsets(new))
        if known:
            log.warning(
                "%s: nothing is committed yet; starting where the group stands: %s",
                self._subscription.name,
                ", ".join(f"{tp} at {offset}" for tp, offset in sorted(known.items())),
            )
        return first | known
