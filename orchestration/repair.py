"""What does not agree about a consumer: positions in the Delta log, the offsets of Kafka's group, Dagster's events; and mending.

The Delta log is the truth, so most differences can be mended without asking anybody: the others follow it. What cannot is said
with what to do. Comparing is pure; `Repairer` looks, and acts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import dagster as dg
from deltalake import DeltaTable

from consumers.brokers.protocol import BrokerAdmin
from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import WeirError, within
from consumers.staging.log import StagedCommit, commits
from consumers.staging.mend import mend
from consumers.staging.positions import committed_positions, known_topic
from consumers.staging.resolve import Resolver
from consumers.types import Positions, TopicPartition, Watermarks, topic_hash
from orchestration import mirror
from orchestration.mirror_events import data_version

Kind = Literal["kafka", "position", "group", "events", "leftover"]
_NAMED = 5
_ACCEPT = "set `on_data_loss: record`, reload, and set it back once a run has gone on"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that does not agree, in words. `safe`: it can be mended without a decision, and `action` says how.

    Otherwise `action` says what a person has to do.
    """

    kind: Kind
    where: str
    explanation: str
    safe: bool
    action: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a difference: whether it is mended, and what was done or why it was not."""

    difference: Difference
    mended: bool
    said: str


def position_differences(
    topic: str, positions: Positions, marks: Mapping[TopicPartition, Watermarks], recreated: bool
) -> list[Difference]:
    """Positions that the topic does not have. Nothing is mended: going on means to accept a loss."""
    if recreated:
        return [
            Difference(
                "position",
                topic,
                "the topic was deleted and created again: the positions belong to the old one. What is staged is safe.",
                False,
                f"If that was meant, {_ACCEPT}.",
            )
        ]
    found = []
    for tp, position in sorted(positions.items()):
        mark = marks.get(tp)
        if mark is None:
            found.append(_lost(tp, "the topic has no such partition any more"))
        elif position < mark.low:
            found.append(
                _lost(tp, f"offsets {position} to {mark.low - 1} are gone from the topic (retention) and were not staged")
            )
        elif position > mark.high:
            found.append(_lost(tp, f"the topic ends at {mark.high}, before the committed {position}: its log was cut short"))
    return found


def group_differences(
    group: str, positions: Positions, offsets: Positions, marks: Mapping[TopicPartition, Watermarks]
) -> list[Difference]:
    """Offsets of the group that are not the positions, for positions that the topic has."""
    found = []
    for tp, position in sorted(positions.items()):
        mark, offset = marks.get(tp), offsets.get(tp)
        if offset == position or mark is None or not mark.low <= position <= mark.high:
            continue
        said = "has no offset" if offset is None else f"stands at {offset}"
        why = (
            "ahead: Kafka's tools show less lag than there is; a table that were lost would be begun too late"
            if offset is not None and offset > position
            else "behind: Kafka's tools show more lag than there is"
        )
        action = f"Set it to {position}, if the group has no members; members tell it themselves."
        found.append(Difference("group", str(tp), f"group {group} {said}, the position is {position}: {why}.", True, action))
    return found


def event_differences(behind: Collection[mirror.Behind], log: Iterable[StagedCommit]) -> list[Difference]:
    """Windows (and other parts) whose newest event is not of their newest commit, one difference for each cause."""
    ours = {data_version(commit) for commit in log}
    causes: dict[str, list[str]] = {}
    for each in behind:
        cause = "has no event" if not each.found else "has an older event" if each.found in ours else "was reported by hand"
        causes.setdefault(cause, []).append(each.part)
    why = {
        "has no event": "its commits are in the Delta log: the event was lost to a crash, or wiped.",
        "has an older event": "a later commit touched it: the newer event was lost to a crash.",
        "was reported by hand": "the newest materialization is of no commit, so what depends on it looks stale, or fresh, "
        "without reason.",
    }
    action = "Write the event of the newest commit."
    return [Difference("events", named(parts), f"{cause}: {why[cause]}", True, action) for cause, parts in causes.items()]


def named(parts: Sequence[str]) -> str:
    """How many, and the first few by name."""
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return f"{len(parts):,}: {', '.join(sorted(parts)[:_NAMED])}{more}"


def _lost(tp: TopicPartition, what: str) -> Difference:
    action = f"Find out whether the records still exist; to accept the loss, {_ACCEPT}."
    return Difference("position", str(tp), f"{what}. What is staged is safe.", False, action)


class Repairer:
    """Looks at one consumer, and mends what is safe to mend."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        consumer: Consumer,
        admin: BrokerAdmin | WeirError,
        clock: Clock,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        """`admin` may be the reason why Kafka cannot be asked; the rest is compared all the same.

        `progress` is told how many of how many events are written, which is the part of mending that takes long.
        """
        self._instance = instance
        self._consumer = consumer
        self._admin = admin
        self._clock = clock
        self._progress = progress

    def look(self, events: bool = True) -> list[Difference]:
        """Everything that differs. Without `events` Dagster's are not compared, which is the part that takes long."""
        if not DeltaTable.is_deltatable(str(self._consumer.staged)):
            return []
        return [*self._kafka(), *(self._events() if events else []), *self._leftovers()]

    def mend(self, differences: Iterable[Difference], seconds: float | None = None) -> list[Outcome]:
        """Do what is safe, writing events for at most `seconds`. What is not safe stays as it is, and is said."""
        found = list(differences)
        done = [Outcome(each, False, each.action) for each in found if not each.safe]
        groups = [each for each in found if each.kind == "group"]
        if groups:
            done += self._mend_group(groups)
        if events := [each for each in found if each.kind == "events"]:
            done += self._mend_events(events, seconds)
        if leftovers := [each for each in found if each.kind == "leftover"]:
            done += self._mend_leftovers(leftovers)
        return done

    def catch_up(self, seconds: float) -> int:
        """Write the events of commits since the last pass, for at most `seconds`. Returns how many. Cheap without any."""
        write = self._instance.report_runless_asset_event
        return mirror.catch_up(self._instance, self._consumer, write, self._clock, seconds=seconds).events

    def _kafka(self) -> list[Difference]:
        try:
            if isinstance(self._admin, WeirError):
                raise self._admin
            topics = self._consumer.config.topics_among(self._admin.topics)
            return [each for topic in topics for each in self._of_topic(self._admin, topic)]
        except WeirError as error:
            return [Difference("kafka", self._consumer.config.source, f"{within(error)}.", False, "Positions were not compared.")]

    def _of_topic(self, admin: BrokerAdmin, topic: str) -> list[Difference]:
        marks = admin.watermarks(topic)
        known, now = known_topic(DeltaTable(self._consumer.staged), self._consumer.name, topic), admin.topic_id(topic)
        # The group first: a member that commits in between is ahead of what was asked, never behind.
        offsets = admin.group_offsets(self._consumer.group, topic)
        recreated = bool(now) and known not in (None, topic_hash(""), topic_hash(now))
        positions = self._positions(topic, marks)
        wrong = position_differences(topic, positions, marks, recreated)
        return wrong if recreated else [*wrong, *group_differences(self._consumer.group, positions, offsets, marks)]

    def _positions(self, topic: str, marks: Mapping[TopicPartition, Watermarks]) -> Positions:
        return committed_positions(self._consumer.staged, self._consumer.name, topic, len(marks))

    def _mend_group(self, groups: Sequence[Difference]) -> list[Outcome]:
        if isinstance(self._admin, WeirError):
            return [Outcome(each, False, within(self._admin)) for each in groups]
        wanted = {each.where for each in groups}
        positions: dict[TopicPartition, int] = {}
        for topic in self._consumer.config.topics_among(self._admin.topics):
            now = self._positions(topic, self._admin.watermarks(topic))
            positions |= {tp: offset for tp, offset in now.items() if str(tp) in wanted}
        told = self._admin.set_group_offsets(self._consumer.group, positions)
        said = "set to the position" if told else "left to the group's members, who tell it within half a minute"
        return [Outcome(each, told, said) for each in groups]

    def _events(self) -> list[Difference]:
        log = commits(self._consumer.staged)
        behind = [b for b in mirror.compare(self._instance, self._consumer, self._clock, log) if not mirror.young(b, self._clock)]
        return event_differences(behind, log)

    def _mend_events(self, events: Sequence[Difference], seconds: float | None) -> list[Outcome]:
        write = self._instance.report_runless_asset_event
        done = mirror.catch_up(
            self._instance, self._consumer, write, self._clock, seconds=seconds, full=True, progress=self._progress
        )
        said = f"{done.events:,} events were written"
        if done.again_in is not None:
            # Whoever makes the next pass, a member or the sensor that keeps them, goes on with it.
            said += f"; the rest comes with the next pass, from {done.again_in:.0f} s on"
        return [Outcome(each, done.again_in is None, said) for each in events]

    def _leftovers(self) -> list[Difference]:
        if not DeltaTable.is_deltatable(str(self._consumer.dead_letters)):
            return []
        waiting = Resolver(self._consumer, self._clock).waiting()
        if not waiting:
            return []
        said = "wait for the rewrite that wrote them: it is under way, or was interrupted. Nothing shows them until then."
        action = "Make those final whose rewrite is in the log; remove those whose rewrite was given up."
        return [Difference("leftover", "dead letters", f"those of {len(waiting)} rewrites {said}", True, action)]

    def _mend_leftovers(self, leftovers: Sequence[Difference]) -> list[Outcome]:
        mend(self._consumer, self._clock)
        left = Resolver(self._consumer, self._clock).waiting()
        said = f"{len(left)} rewrites may still be under way" if left else "made final, or removed"
        return [Outcome(each, not left, said) for each in leftovers]
