"""Compares what was produced with what is in the tables. It knows nothing of how they were written.

Every produced record must be in the staged table or in the dead-letter table, by whether it is malformed, exactly once, with
the content that it was produced with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from consumers.config import Consumer
from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition
from tests.faults.ledger import Sent, digest, value_of

Place = tuple[int, int]


@dataclass(frozen=True)
class Findings:
    """What is wrong, each by (partition, offset); all empty when all is well.

    `lost` is in neither table, `twice` more than once in the two together, `misplaced` in the other table than it belongs to,
    `changed` has other content, `unknown` was never produced. `gaps` are partitions whose commits do not join end to start,
    `positions` those that do not stand at their end, `group_ahead` those whose group offset is past the position.
    """

    lost: tuple[Place, ...] = ()
    twice: tuple[Place, ...] = ()
    misplaced: tuple[Place, ...] = ()
    changed: tuple[Place, ...] = ()
    unknown: tuple[Place, ...] = ()
    gaps: tuple[str, ...] = ()
    positions: Mapping[int, tuple[int | None, int]] = field(default_factory=dict)
    group_ahead: tuple[int, ...] = ()


def audit(
    consumer: Consumer, ledger: Iterable[Sent], ends: Mapping[int, int], group: Mapping[TopicPartition, int] | None = None
) -> Findings:
    """Compare the tables with the ledger; `ends` are the offsets that positions must have reached."""
    expected = {(r.partition, r.offset): r for r in ledger}
    staged, dead = staged_digests(consumer), dead_letter_digests(consumer)
    count = Counter(place for place, _ in staged) + Counter(place for place, _ in dead)
    known = [(place, content, False) for place, content in staged if place in expected]
    known += [(place, content, True) for place, content in dead if place in expected]
    positions = {
        tp.partition: offset
        for tp, offset in committed_positions(consumer.staged, consumer.name, consumer.config.topic, 64).items()
    }
    return Findings(
        lost=_sorted(expected.keys() - count.keys()),
        twice=_sorted(place for place, times in count.items() if times > 1),
        misplaced=_sorted(place for place, _, is_dead in known if is_dead != expected[place].malformed),
        changed=_sorted(place for place, content, _ in known if content != expected[place].digest),
        unknown=_sorted(count.keys() - expected.keys()),
        gaps=tuple(gaps(consumer)),
        positions={p: (positions.get(p), end) for p, end in ends.items() if positions.get(p) != end},
        group_ahead=group_ahead(consumer, group or {}),
    )


def group_ahead(consumer: Consumer, group: Mapping[TopicPartition, int]) -> tuple[int, ...]:
    """Partitions whose group offset is past the table's position."""
    positions = committed_positions(consumer.staged, consumer.name, consumer.config.topic, 64)
    return tuple(sorted(tp.partition for tp, offset in group.items() if offset > positions.get(tp, -1)))


def staged_digests(consumer: Consumer) -> list[tuple[Place, str]]:
    """Place and content of every staged row that is no tombstone."""
    rows = _rows(consumer.staged, ["_partition", "_offset", "id", "text", "_tombstone"])
    return [((r["_partition"], r["_offset"]), digest(value_of(r["id"], r["text"]))) for r in rows if not r["_tombstone"]]


def dead_letter_digests(consumer: Consumer) -> list[tuple[Place, str]]:
    """Place and content of every dead letter."""
    rows = _rows(consumer.dead_letters, ["_partition", "_offset", "_value"])
    return [((r["_partition"], r["_offset"]), digest(r["_value"])) for r in rows]


def gaps(consumer: Consumer) -> list[str]:
    """Where a commit's range does not begin at the end of the one before it, or at the start that a takeover names.

    A move of positions may begin anywhere: somebody wanted it.
    """
    found = []
    ends: dict[TopicPartition, int] = {}
    for commit in commits(consumer.staged):
        for tp, start in commit.starts.items():
            if ends.get(tp, start) != start and tp not in commit.lost and commit.kind != "move":
                found.append(f"version {commit.version}: {tp} taken over at {start}, not at {ends[tp]}")
            ends[tp] = start
        for tp, step in commit.ranges.items():
            if ends.get(tp) != step.start:
                found.append(f"version {commit.version}: {tp} goes on at {step.start}, not at {ends.get(tp)}")
            ends[tp] = step.end
    return found


def _rows(table: Path, columns: list[str]) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(table)):
        return []
    found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table(columns=columns).to_pylist()
    return found


def _sorted(places: Iterable[Place]) -> tuple[Place, ...]:
    return tuple(sorted(set(places)))
