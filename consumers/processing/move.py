"""Setting a consumer's positions on purpose: to the beginning, the end, a time, or named offsets; some partitions or all.

A move is a takeover at other offsets. Its new epochs fence the members that run, whose next commit fails; they load the positions
and go on from there. What is read again replaces rows rather than doubling them: those at or past an earlier position go in the
very commit that sets it.

The order of the two tables: partitions that go *forward* are first taken over where they stand, which removes the dead letters
past the old position, before the new position would make them final. Then one commit moves everything in the staged table. Dead
letters past an earlier position are tentative from that moment, and are removed last; after a crash before that, by whoever takes
the partition over next.
"""

import logging
import random
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from deltalake import DeltaTable

from consumers.brokers.protocol import BrokerAdmin
from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import ConfigError, OwnershipLost, StorageError, within
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.owner import Owner, label_of
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.follow import follow
from consumers.staging.log import StagedCommit, commits
from consumers.staging.past import rows_past
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange, Position, Positions, TopicPartition, Watermarks, topic_hash

log = logging.getLogger(__name__)

_ATTEMPTS = 6
Target = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""Where to: an end of the topic, the first records at or after a time, or a next offset for each partition."""


@dataclass(frozen=True, slots=True)
class Step:
    """One partition's move; offsets are the next to read."""

    tp: TopicPartition
    before: int
    to: int

    @property
    def skipped(self) -> int:
        """Offsets that will not be read."""
        return max(0, self.to - self.before)

    @property
    def again(self) -> int:
        """Offsets that will be read a second time."""
        return max(0, self.before - self.to)

    @property
    def range(self) -> OffsetRange:
        """Those offsets."""
        return OffsetRange(min(self.before, self.to), max(self.before, self.to))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a move would do. `refusals` say why it must not be done; empty where it may."""

    steps: tuple[Step, ...]
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """What was done. `commit` is None where every partition stood there already; `group_told` whether Kafka's group follows."""

    plan: Plan
    commit: StagedCommit | None
    group_told: bool = False


def plan(
    positions: Mapping[TopicPartition, int | None],
    marks: Mapping[TopicPartition, Watermarks],
    to: Positions,
    floors: Positions | None = None,
) -> Plan:
    """Compare where partitions stand with where they are to. Pure.

    `floors` are the first offsets of logs that were cut short: what is before them has other rows under the same offsets.
    """
    steps = [Step(tp, before, to[tp]) for tp in sorted(to) if (before := positions.get(tp)) is not None]
    refusals = [_refusal(tp, positions.get(tp), to[tp], marks.get(tp), (floors or {}).get(tp, 0)) for tp in sorted(to)]
    return Plan(tuple(step for step in steps if step.before != step.to), tuple(why for why in refusals if why))


def _refusal(tp: TopicPartition, before: int | None, to: int, marks: Watermarks | None, floor: int) -> str:
    if marks is None:
        return f"{tp}: the topic has no such partition"
    if before is None:
        return f"{tp}: it has no position yet; let a member take it over first (run the consumer once)"
    if before > marks.high:
        return f"{tp}: the topic ends at {marks.high}, before the position {before}: it was cut short; see `on_data_loss`"
    return _out_of_reach(tp, to, marks, floor if to < before else 0)


def _out_of_reach(tp: TopicPartition, to: int, marks: Watermarks, floor: int) -> str:
    if to > marks.high:
        return f"{tp}: offset {to} is past the end of what can be read ({marks.high})"
    if to < marks.low:
        return (
            f"{tp}: offsets {to} to {marks.low - 1} are gone from the topic, which begins at {marks.low}: the rows that would be "
            f"removed could not be read again. Move to {marks.low} or later"
        )
    if to < floor:
        return f"{tp}: the log was cut short at offset {floor}, and what was staged before that stays. Move to {floor} or later"
    return ""


class Mover:
    """Moves the positions of one consumer."""

    def __init__(self, consumer: Consumer, admin: BrokerAdmin, clock: Clock, chance: random.Random | None = None) -> None:
        self._consumer = consumer
        self._admin = admin
        self._clock = clock
        self._chance = chance or random.Random()

    def preview(self, target: Target, partitions: Collection[int] = ()) -> tuple[Plan, Counter[str]]:
        """What moving all partitions, or those named, would do, and the rows that would go, by window. Nothing is changed.

        Raises `ConfigError` where the consumer has no positions that could be moved.
        """
        found, seen, topic_id = self._plan(self._staged(), self._offsets(target, partitions))
        back = {step.tp: step.to for step in found.steps if step.again}
        labels = {tp: label_of(topic_id, seen[tp]) for tp in back}
        return found, rows_past(DeltaTable(self._consumer.staged), back, labels)

    def move(self, target: Target, partitions: Collection[int] = (), *, by: str, why: str, member: str) -> Moved:
        """Do it, in one commit. `member` names this process in the table's log.

        Raises `ConfigError` for what must not be done, with nothing changed, and `StorageError` when members keep committing in
        between.
        """
        staged, to = self._staged(), self._offsets(target, partitions)
        for attempt in range(_ATTEMPTS):
            try:
                return self._move(staged, to, StagedCommit(uuid.uuid4().hex, "move", self._consumer.name, member, by=by, why=why))
            except OwnershipLost as error:
                log.info("%s: moving again (%d): %s", self._consumer.name, attempt + 1, error)
                last = error
            self._clock.sleep(self._chance.uniform(0, 0.1 * 2**attempt))
        raise StorageError(
            f"consumer {self._consumer.name}: members committed {_ATTEMPTS} times while the positions were being moved "
            f"({within(last)}). No position was moved. Stop its members (the sensor, then the runs), then move again."
        ) from last

    def _move(self, staged: StagedTable, to: Positions, move: StagedCommit) -> Moved:
        staged.positions(to)
        if (restored := staged.restored()) is not None:
            # Else whoever follows the restore later would undo the move.
            follow(self._consumer, restored, staged, DeadLetterTable(self._consumer, self._clock), move.member, self._clock)
        found, seen, topic_id = self._plan(staged, to)
        if found.refusals:
            raise ConfigError(f"consumer {self._consumer.name}: nothing was moved. {'. '.join(found.refusals)}.")
        if not found.steps:
            return Moved(found, None)
        forward = {step.tp: Start(step.before) for step in found.steps if step.skipped}
        if forward:
            owner = Owner(self._consumer, move.member, self._clock)
            owner.acquire({tp: seen[tp] for tp in forward}, forward, topic_id)
            seen = {**seen, **{tp: replace(seen[tp], epoch=owner.holds[tp].epoch) for tp in forward}}
        moving = {step.tp: seen[step.tp] for step in found.steps}
        labels = {tp: label_of(topic_id, then) for tp, then in moving.items()}
        dead_letters = DeadLetterTable(self._consumer, self._clock)
        taken, done = staged.move(moving, _described(move, found, topic_id), labels, dead_letters.epochs(moving))
        return Moved(found, done, self._follow(dead_letters, found, taken, labels))

    def _follow(
        self,
        dead_letters: DeadLetterTable,
        found: Plan,
        taken: Mapping[TopicPartition, Position],
        labels: Mapping[TopicPartition, str],
    ) -> bool:
        """The positions are moved: the dead letters and the group follow."""
        try:
            dead_letters.acquire({s.tp: replace(taken[s.tp], offset=s.range.start) for s in found.steps}, labels)
        except OwnershipLost as error:
            log.info("%s: a member has taken over after the move, and has removed them: %s", self._consumer.name, error)
        return self._admin.set_group_offsets(self._consumer.group, {step.tp: step.to for step in found.steps})

    def _plan(self, staged: StagedTable, to: Positions) -> tuple[Plan, Mapping[TopicPartition, Position], str]:
        """The plan, what it started from, and the topic's id as the rows have it."""
        topic = self._consumer.config.topic
        seen = staged.positions(to)
        topic_id = self._topic_id(staged, topic)
        marks = self._admin.stable_watermarks(self._admin.watermarks(topic))
        floors = cut_floors(commits(self._consumer.staged)) if any(then.cut for then in seen.values()) else {}
        return plan({tp: then.offset for tp, then in seen.items()}, marks, to, floors), seen, topic_id

    def _topic_id(self, staged: StagedTable, topic: str) -> str:
        known, now = staged.known_topic(topic), self._admin.topic_id(topic)
        if known == topic_hash(now):
            return now
        if known == topic_hash(""):
            return ""
        raise ConfigError(
            f"consumer {self._consumer.name}: nothing was moved. "
            + (
                "It has no positions yet: say in its definition where to `start`."
                if known is None
                else f"Its positions belong to an earlier topic '{topic}', which was deleted and created again. What is staged "
                "is safe. To go on in the new one, set `on_data_loss: record`, and set it back once a run has gone on."
            )
        )

    def _staged(self) -> StagedTable:
        if not DeltaTable.is_deltatable(str(self._consumer.staged)):
            raise ConfigError(
                f"consumer {self._consumer.name}: nothing was moved. It has no table yet: say in its definition where to `start`."
            )
        return StagedTable(self._consumer, self._clock)

    def _offsets(self, target: Target, partitions: Collection[int]) -> Positions:
        """The offsets that a target means now."""
        topic = self._consumer.config.topic
        if isinstance(target, Mapping):
            return {TopicPartition(topic, p): offset for p, offset in target.items() if not partitions or p in partitions}
        marks = self._admin.stable_watermarks(self._admin.watermarks(topic))
        if isinstance(target, datetime):
            at = self._admin.offsets_at(topic, int(target.timestamp() * 1000))
            found = {tp: min(max(at[tp], mark.low), mark.high) for tp, mark in marks.items()}
        else:
            found = {tp: mark.low if target == "earliest" else mark.high for tp, mark in marks.items()}
        asked = {TopicPartition(topic, p) for p in partitions} or set(found)
        # A partition that is not there is refused by the plan, by name.
        return {tp: found.get(tp, 0) for tp in asked}


def cut_floors(log: Collection[StagedCommit]) -> Positions:
    """Per partition, where its log was last cut short; partitions that never were are absent."""
    floors: dict[TopicPartition, int] = {}
    for commit in log:
        if commit.kind == "acquire":
            cut = {tp: lost.start for tp, lost in commit.lost.items() if len(lost) and lost.start == commit.starts.get(tp)}
            floors |= cut
    return floors


def _described(move: StagedCommit, found: Plan, topic_id: str) -> StagedCommit:
    topics = {step.tp.topic: topic_id for step in found.steps}
    return replace(
        move,
        topic_ids=topics,
        starts={step.tp: step.to for step in found.steps},
        moved={step.tp: step.range for step in found.steps},
    )
