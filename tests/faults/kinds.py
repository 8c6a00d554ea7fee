"""The oracle's answer by kind: L lost, D double, P phantom, H changed contents, O offsets, V versions, M Dagster's mirror.

L  acked records that are in neither the staged table nor the dead letters
D  (partition, offset) more than once in the two together
P  rows of sends that failed, were aborted or never were; rows of an unknown send more than once
H  contents that are not those that were sent, or in the other table than they belong to
O  group offset past the position, either of them gone back, ranges that do not join, positions not at their end
V  versions missing in a Delta log, or a table that a reader cannot load, or reads differently
M  Dagster's events that are not of the newest commits, after repair
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

import dagster as dg

from consumers.brokers.protocol import BrokerAdmin
from consumers.config import Consumer
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition
from tests.faults.ledger import Ledger
from tests.faults.loads import broken
from tests.faults.mirrored import differences, repaired
from tests.faults.oracle import audit, dead_letter_digests, staged_digests

_SHOWN = 5
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Kinds:
    """What was found of each kind, in words; all empty when all is well."""

    L: tuple[str, ...] = ()
    D: tuple[str, ...] = ()
    P: tuple[str, ...] = ()
    H: tuple[str, ...] = ()
    O: tuple[str, ...] = ()  # noqa: E741 - the kinds have these names
    V: tuple[str, ...] = ()
    M: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """How many there are, by kind."""
        return {each.name: len(getattr(self, each.name)) for each in fields(self)}

    def told(self) -> list[str]:
        """The first few of each kind."""
        return [f"{each.name}: {text}" for each in fields(self) for text in getattr(self, each.name)[:_SHOWN]]


@dataclass
class Watch:
    """Remembers the furthest that positions and group offsets were seen at, and what was wrong when somebody looked."""

    positions: Callable[[], Offsets]
    group: Callable[[], Offsets]
    wrong: list[str] = field(default_factory=list)
    _seen: dict[str, dict[TopicPartition, int]] = field(default_factory=lambda: {"position": {}, "group offset": {}})

    def look(self) -> None:
        """Compare now with before. The group is asked first: a commit in between can only put it further behind."""
        group, positions = self.group(), self.positions()
        self.wrong += [f"{tp}: group offset {at} is past the position {positions.get(tp)}" for tp, at in _past(group, positions)]
        for what, now in (("position", positions), ("group offset", group)):
            self.wrong += [f"{tp}: the {what} went back from {at} to {now.get(tp)}" for tp, at in _past(self._seen[what], now)]
            self._seen[what].update(now)

    def forget(self) -> None:
        """Somebody has moved the positions on purpose."""
        for each in self._seen.values():
            each.clear()


def watch(consumer: Consumer, admin: BrokerAdmin) -> Watch:
    """A watch over a consumer of one topic."""
    topic = consumer.config.topic
    return Watch(
        lambda: committed_positions(consumer.staged, consumer.name, topic, 64),
        lambda: admin.group_offsets(consumer.group, topic),
    )


def judge(
    consumer: Consumer,
    ledger: Ledger,
    ends: Mapping[int, int],
    watched: Watch,
    instance: dg.DagsterInstance,
    admin: BrokerAdmin,
    spark: bool = False,
) -> Kinds:
    """Everything that is wrong now; `ends` are the offsets that positions must have reached. Repairs Dagster's events first."""
    watched.look()
    if unreadable := broken(consumer.staged, spark) + broken(consumer.dead_letters, spark):
        return Kinds(V=tuple(unreadable), O=tuple(watched.wrong))  # what cannot be read cannot be compared
    found = audit(consumer, ledger.acked, ends)
    short = [f"partition {p}: the position is {at}, not {end}" for p, (at, end) in found.positions.items()]
    return Kinds(
        L=_texts(found.lost),
        D=_texts(found.twice),
        P=tuple(phantoms(consumer, ledger)),
        H=_texts(found.changed) + tuple(f"{each} is in the wrong table" for each in found.misplaced),
        O=(*watched.wrong, *found.gaps, *short),
        M=tuple(repaired(instance, consumer, admin) + differences(instance, consumer)),
    )


def phantoms(consumer: Consumer, ledger: Ledger) -> list[str]:
    """Rows that nobody sent, of sends that failed, and those after the first of a send whose fate is unknown."""
    acked = {(record.partition, record.offset) for record in ledger.acked}
    rows = staged_digests(consumer) + dead_letter_digests(consumer)
    found = [f"{place} was never sent, or failed" for place, what in rows if place not in acked and what not in ledger.unknown]
    found += [
        f"{place} has the contents of a send that failed" for place, what in rows if place in acked and what in ledger.failed
    ]
    times = Counter(what for place, what in rows if place not in acked and what in ledger.unknown)
    return found + [f"an unknown send is there {count} times" for count in times.values() if count > 1]


def _past(these: Offsets, those: Offsets) -> list[tuple[TopicPartition, int]]:
    return [(tp, at) for tp, at in sorted(these.items()) if at > those.get(tp, -1)]


def _texts(places: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, places))
