"""What a staged table's Delta log says about itself: one `StagedCommit` for every commit of a consumer.

Ingestion writes it into the commit that holds the data, so that log and data cannot disagree. Everything that explains the
table afterwards (Dagster's mirror, checks, status) reads it from here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from deltalake import DeltaTable

from consumers.staging.history import commit_infos
from consumers.types import OffsetRange, TopicPartition

METADATA_KEY = "weir"
Kind = Literal["batch", "acquire", "rewrite", "replay", "move"]


@dataclass(frozen=True, slots=True)
class WindowChange:
    """What a commit added to one window."""

    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds that a batch took: waiting for the first record to be flushed, decoding, writing files, committing.

    In a commit that was read from the log, `commit` is what the member's commit before took, 0 for its first.
    """

    age: float = 0.0
    decode: float = 0.0
    write: float = 0.0
    commit: float = 0.0


@dataclass(frozen=True, slots=True)
class StagedCommit:
    """A commit of a staged table.

    `ranges` are the offsets that it accounts for: `rows` staged, `dead_letters` rejected, `skipped` that hold no record, or
    one that `where` passes over.
    `lost` are offsets that the topic no longer held; they are in no range. `high` are the high watermarks known then.

    `kind` says what the commit did:
    - `batch` staged the records of `ranges`, and moved the positions past them.
    - `acquire`: a member took partitions over, at the positions in `starts`. Where such a start is not the end of the range
      before it, `lost` says why; a lost range is empty where the topic was recreated and nobody can tell how much was missed.
    - `rewrite` replaced rows of one window by what the records of `ranges` give now; positions stand. `rows` came, `removed`
      went, and `lost` are offsets that were to be read again and that the topic no longer holds.
    - `replay` added rows that were dead letters; `ranges` are their offsets. Positions stand.
    - `move`: somebody set positions to `starts`, on purpose. Offsets between the old and a later start are in `moved`, skipped;
      those between an earlier start and the old one are in `moved` and are read again, their rows are `removed`. One that follows
      a RESTORE is `by` "restore"; its `ranges` are the offsets whose rewrites and replays went with that.

    `looked` is the table version up to which the log was searched for a RESTORE before a takeover or such a move; -1 for none.

    `times` has, per partition, the latest event time among the commit's rows (milliseconds since the epoch). `resolved` counts
    dead letters that became rows. `by` and `why` say who did it, where a person did. `schema_id` names the columns.
    """

    commit_id: str
    kind: Kind
    consumer: str
    member: str
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    dead_letters: int = 0
    skipped: int = 0
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    windows: Mapping[str, WindowChange] = field(default_factory=dict)
    high: Mapping[TopicPartition, int] = field(default_factory=dict)
    timings: Timings = Timings()
    times: Mapping[TopicPartition, int] = field(default_factory=dict)
    moved: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    removed: int = 0
    resolved: int = 0
    by: str = ""
    why: str = ""
    schema_id: str = ""
    looked: int = -1
    version: int = -1
    committed_at_ms: int = 0

    @property
    def offsets(self) -> int:
        """How many offsets the commit accounts for."""
        return sum(len(r) for r in self.ranges.values())

    @property
    def lag(self) -> int:
        """Records behind the high watermarks in the commit's own partitions, as known then."""
        return sum(max(0, self.high[tp] - r.end) for tp, r in self.ranges.items() if tp in self.high)

    def to_json(self) -> str:
        """The form that the Delta commit holds; version and time are the log's own."""
        return json.dumps(
            {
                "commit_id": self.commit_id,
                "kind": self.kind,
                "consumer": self.consumer,
                "member": self.member,
                "topic_ids": dict(self.topic_ids),
                "ranges": _ranges_out(self.ranges),
                "rows": self.rows,
                "bytes": self.bytes,
                "dead_letters": self.dead_letters,
                "skipped": self.skipped,
                "lost": _ranges_out(self.lost),
                "windows": {w: [c.rows, c.bytes, c.files] for w, c in self.windows.items()},
                "starts": _offsets_out(self.starts),
                "high": _offsets_out(self.high),
                "timings": [self.timings.age, self.timings.decode, self.timings.write, self.timings.commit],
                "times": _offsets_out(self.times),
                "moved": _ranges_out(self.moved),
                "removed": self.removed,
                "resolved": self.resolved,
                "by": self.by,
                "why": self.why,
                "schema_id": self.schema_id,
                "looked": self.looked,
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str, version: int, committed_at_ms: int) -> "StagedCommit":
        """The inverse of `to_json`."""
        raw: dict[str, Any] = json.loads(text)
        return StagedCommit(
            commit_id=raw["commit_id"],
            kind=raw["kind"],
            consumer=raw["consumer"],
            member=raw["member"],
            topic_ids=raw["topic_ids"],
            ranges=_ranges_in(raw["ranges"]),
            rows=raw["rows"],
            bytes=raw["bytes"],
            dead_letters=raw["dead_letters"],
            skipped=raw["skipped"],
            lost=_ranges_in(raw["lost"]),
            windows={w: WindowChange(*numbers) for w, numbers in raw["windows"].items()},
            starts=_offsets_in(raw["starts"]),
            high=_offsets_in(raw["high"]),
            timings=Timings(*raw["timings"]),
            times=_offsets_in(raw.get("times", {})),
            moved=_ranges_in(raw.get("moved", {})),
            removed=raw.get("removed", 0),
            resolved=raw.get("resolved", 0),
            by=raw.get("by", ""),
            why=raw.get("why", ""),
            schema_id=raw.get("schema_id", ""),
            looked=raw.get("looked", -1),
            version=version,
            committed_at_ms=committed_at_ms,
        )


def commits(table: Path | DeltaTable, after: int = -1) -> list[StagedCommit]:
    """The consumer's commits with a version above `after`, oldest first, as far back as the Delta log is kept.

    A table that does not exist yet has none. Commits of others (compaction, backfills by hand) are left out.
    """
    if isinstance(table, Path):
        if not DeltaTable.is_deltatable(str(table)):
            return []
        table = DeltaTable(table)
    return list(newest_first(table, after))[::-1]


def latest(table: DeltaTable, versions: int) -> list[StagedCommit]:
    """Those of the last so many versions of the loaded table, oldest first."""
    return commits(table, max(-1, table.version() - versions))


def newest_first(table: DeltaTable, after: int = -1) -> Iterator[StagedCommit]:
    """The same, from the loaded version back, read as they are asked for."""
    for version, info in commit_infos(table, after):
        if METADATA_KEY in info:
            yield StagedCommit.from_json(info[METADATA_KEY], version, int(info["timestamp"]))


def _ranges_out(ranges: Mapping[TopicPartition, OffsetRange]) -> dict[str, list[int]]:
    return {str(tp): [r.start, r.end] for tp, r in ranges.items()}


def _ranges_in(raw: Mapping[str, list[int]]) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition.parse(tp): OffsetRange(start, end) for tp, (start, end) in raw.items()}


def _offsets_out(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(tp): offset for tp, offset in offsets.items()}


def _offsets_in(raw: Mapping[str, int]) -> dict[TopicPartition, int]:
    return {TopicPartition.parse(tp): offset for tp, offset in raw.items()}
