"""The loop: poll, submit, commit group offsets; and what happens when partitions come, go, are lost, or are fought over."""

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from consumers.brokers.protocol import BrokerConsumer, Partitions
from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import FatalError, OwnershipLost
from consumers.processing.starts import Start, start_of
from consumers.processing.strategies.stage import MessageRejected, Stage
from consumers.processing.strategies.writer import Hold, Owner
from consumers.staging.log import StagedCommit
from consumers.staging.positions import Position, topic_hash
from consumers.types import Positions, RecordBatch, TopicPartition, Watermarks

log = logging.getLogger(__name__)

POLL_RECORDS = 10_000
_POLL_SECONDS = 0.25
_REVOKE_SECONDS = 30.0
_ACQUIRE_ATTEMPTS = 5
_CONTESTS = 2
_ALONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends by itself: once caught up with the offsets seen at its start, or after some seconds."""

    until_caught_up: bool = False
    max_seconds: float | None = None
    stop_seconds: float = 8.0


class Processor:
    """One member of a consumer's group. `run` blocks; everything happens in its thread but decoding and writing."""

    def __init__(
        self,
        consumer: Consumer,
        broker: BrokerConsumer,
        owner: Owner,
        stage: Stage,
        clock: Clock,
        on_commit: Callable[[StagedCommit], None],
    ) -> None:
        self._consumer = consumer
        self._broker = broker
        self._owner = owner
        self._stage = stage
        self._clock = clock
        self._on_commit = on_commit
        self._holds: dict[TopicPartition, Hold] = {}
        self._safe: dict[TopicPartition, int] = {}
        self._seen: dict[TopicPartition, int] = {}
        self._goal: dict[TopicPartition, int] = {}
        self._held: deque[RecordBatch] = deque()
        self._contested = 0
        self._paused = False
        self._ending = False
        self._until_caught_up = False
        self._answered: float | None = None

    def run(self, stop: threading.Event, limits: Limits) -> str:
        """Run until told to stop or a limit is reached; returns which. Raises `FatalError`, or what a callback raised."""
        started = self._clock.monotonic()
        self._until_caught_up = limits.until_caught_up
        self._broker.subscribe(self)
        while (reason := self._reason_to_end(stop, limits, started)) is None:
            self._step()
        self._finish(limits.stop_seconds)
        return reason

    def _step(self) -> None:
        try:
            self._offer()
            batch = self._broker.poll(min(POLL_RECORDS, self._consumer.config.batch.max_records), _POLL_SECONDS)
            if batch is not None:
                self._seen |= {tp: r.end for tp, r in batch.ranges.items()}
                self._held.append(batch)
                self._offer()
            self._stage.hold(self._holds, self._broker.high_watermarks(frozenset(self._holds)))
            self._collect()
            if self._until_caught_up and self._read_all() and not self._at_goal(self._safe):
                self._stage.flush(_POLL_SECONDS)
        except OwnershipLost as error:
            self._reclaim(error)

    def _offer(self) -> None:
        """Hand held batches on; where they are refused, pause, and resume once all are taken."""
        while self._held:
            try:
                self._stage.submit(self._held[0])
            except MessageRejected:
                self._broker.pause()
                self._paused = True
                return
            self._held.popleft()
        if self._paused:
            self._broker.resume()
            self._paused = False

    def _collect(self, wait: bool = False) -> None:
        """Pass on what was committed: group offsets follow, then the listener hears of it."""
        for commit in self._stage.poll():
            self._contested = 0
            ends = {tp: step.end for tp, step in commit.ranges.items()}
            self._safe |= {tp: end for tp, end in ends.items() if tp in self._safe}
            self._broker.commit(ends, wait)
            self._on_commit(commit)

    def assigned(self, partitions: Partitions) -> Positions:
        """Take partitions over, in the tables first. None at all is an answer too: the group has none for this member."""
        self._answered = self._clock.monotonic()
        if not partitions:
            return {}
        for attempt in range(_ACQUIRE_ATTEMPTS):
            try:
                return self._acquire(partitions)
            except OwnershipLost as error:
                log.info("%s: taking over again (%d): %s", self._consumer.name, attempt + 1, error)
                self._clock.sleep(random.uniform(0, 0.1 * 2**attempt))
        try:
            return self._acquire(partitions)
        except OwnershipLost as error:
            # Going on would leave partitions with this member that it never reads.
            raise FatalError(
                f"consumer {self._consumer.name}: could not take {', '.join(map(str, sorted(partitions)))} over in "
                f"{_ACQUIRE_ATTEMPTS + 1} attempts ({error}). Nothing was lost or written twice. Look for a second deployment "
                "with the same consumer, or start again."
            ) from error

    def revoked(self, partitions: Partitions) -> None:
        """Finish and commit within the time allowed, else forget; then let go."""
        if self._ending:
            self._let_go(partitions)
            return
        try:
            if not self._stage.flush(_REVOKE_SECONDS):
                log.warning("%s: revoked before the batch was committed; it is read again", self._consumer.name)
                self._forget_unsafe()
            self._collect(wait=True)
        except OwnershipLost as error:
            log.warning("%s: %s; the batch is read again", self._consumer.name, error)
            self._forget_unsafe()
        self._let_go(partitions)

    def lost(self, partitions: Partitions) -> None:
        """Another member has them already: forget, let go."""
        log.warning("%s: lost %s", self._consumer.name, ", ".join(map(str, sorted(partitions))))
        self._forget_unsafe()
        self._let_go(partitions)

    def _acquire(self, partitions: Partitions) -> Positions:
        topic = self._consumer.config.topic
        topic_id = self._broker.topic_id()
        seen = self._owner.positions(partitions)
        known = self._owner.known_topic(topic)
        # A broker that knows no ids is no evidence of another topic, neither now nor when the table was begun.
        recreated = bool(topic_id) and known not in (None, topic_hash(""), topic_hash(topic_id))
        if known is None or recreated:
            # The first to meet a topic pins the start of all of its partitions, so that one that is added later is known to be
            # new and is read from its beginning, whatever `start` says.
            seen = self._owner.positions(partitions | self._broker.partitions())
        ours, partitions = partitions, frozenset(seen)
        marks = self._broker.watermarks(partitions)
        starts = self._starts(seen, marks, recreated, known is None)
        holds, takeover = self._owner.acquire(seen, starts, topic_id)
        positions = {tp: starts[tp].offset for tp in ours}
        self._holds |= {tp: holds[tp] for tp in ours}
        self._safe |= positions
        self._seen |= positions
        self._goal |= {tp: marks[tp].high for tp in ours}
        self._stage.hold(self._holds, self._goal)
        if takeover.lost:
            log.warning("%s: records were lost: %s", self._consumer.name, dict(takeover.lost))
            self._on_commit(takeover)
        # Whoever committed last may have died before it told the group.
        self._broker.commit(positions)
        return positions

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
        record = self._consumer.config.on_data_loss == "record"
        return {tp: start_of(tp, position.offset, first[tp], marks[tp], recreated, record) for tp, position in seen.items()}

    def _first_offsets(self, new: Partitions, marks: Mapping[TopicPartition, Watermarks]) -> Positions:
        """Where a topic begins that the table does not know yet: where its group stood, or where the definition says."""
        start = self._consumer.config.start
        if start == "earliest":
            first = {tp: marks[tp].low for tp in new}
        elif start == "latest":
            first = {tp: marks[tp].high for tp in new}
        else:
            first = dict(self._broker.offsets_at(new, int(datetime.fromisoformat(start).timestamp() * 1000)))
        known = dict(self._broker.group_offsets(new))
        if known:
            log.warning(
                "%s: the table has no positions yet; starting where the group stands: %s",
                self._consumer.name,
                ", ".join(f"{tp} at {offset}" for tp, offset in sorted(known.items())),
            )
        return first | known

    def _reclaim(self, error: OwnershipLost) -> None:
        """Somebody committed for our partitions: forget, look where the table stands, take over again, seek."""
        self._contested += 1
        if self._contested > _CONTESTS:
            raise FatalError(
                f"consumer {self._consumer.name}: another process keeps writing the same partitions ({error}). This member stops "
                "and leaves them to it; nothing was lost or written twice. Look for a second deployment with the same consumer."
            ) from error
        log.warning("%s: %s; starting again from the table's positions", self._consumer.name, error)
        self._forget_unsafe()
        self._clock.sleep(random.uniform(0.0, 0.5))
        if self._holds:
            self._broker.seek(self.assigned(frozenset(self._holds)))

    def _forget_unsafe(self) -> None:
        """Drop everything that is not committed; the partitions that stay are read again from their committed offsets."""
        self._stage.discard()
        self._held.clear()
        self._collect()
        self._seen |= self._safe
        self._broker.seek(self._safe)

    def _let_go(self, partitions: Partitions) -> None:
        for owned in (self._holds, self._safe, self._seen, self._goal):
            for tp in partitions:
                owned.pop(tp, None)
        self._held = deque(batch.without(partitions) for batch in self._held)
        self._stage.hold(self._holds, self._goal)

    def _reason_to_end(self, stop: threading.Event, limits: Limits, started: float) -> str | None:
        elapsed = self._clock.monotonic() - started
        if stop.is_set():
            return "stopped"
        if limits.max_seconds is not None and elapsed >= limits.max_seconds:
            return f"handed over after {elapsed:.0f} s"
        if limits.until_caught_up and not self._held:
            if not self._holds:
                # The group answers late while it waits for a member that was killed; what that one held then comes here.
                since = self._answered
                alone = since is not None and self._clock.monotonic() - since > _ALONE_SECONDS
                return "no partitions were assigned" if alone else None
            if self._at_goal(self._safe):
                return "caught up"
        return None

    def _read_all(self) -> bool:
        return bool(self._holds) and not self._held and self._at_goal(self._seen)

    def _at_goal(self, positions: Positions) -> bool:
        return all(positions[tp] >= goal for tp, goal in self._goal.items())

    def end(self) -> None:
        """What is not committed stays so; partitions that are revoked from now on are just let go."""
        self._ending = True

    def _finish(self, seconds: float) -> None:
        """Commit what is in hand, or leave it to the next start."""
        try:
            if not self._held:
                self._stage.flush(seconds)
            self._collect(wait=True)
            self._collect()  # raises what failed after those commits
        except OwnershipLost as error:
            log.warning("%s: %s; the next start reads it again", self._consumer.name, error)
            self._stage.discard()
