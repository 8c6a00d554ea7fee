"""Staged tables for tests: real Delta tables with the commits that ingestion would have made, written without Kafka."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from consumers.config import Consumer, ConsumerConfig
from consumers.staging.log import METADATA_KEY, StagedCommit, WindowChange, commits
from consumers.types import OffsetRange, TopicPartition

TP = TopicPartition("orders", 0)
TOPIC_ID = "topic-id"


def consumer_in(folder: Path, **attributes: object) -> Consumer:
    """A consumer `orders` of day windows from 2024 on, its tables in `folder`."""
    definition = {"topic": "orders", "schema": {"id": "long"}, "window": {"every": "day", "first": "2024-01-01"}, **attributes}
    config = ConsumerConfig.model_validate(definition)
    return Consumer(name="orders", config=config, staged=folder / "staged", dead_letters=folder / "dead")


@dataclass
class Tables:
    """Writes commits of one partition, one after the other. Offsets that are neither staged nor dead are skipped."""

    consumer: Consumer
    tp: TopicPartition = TP
    topic_id: str = TOPIC_ID
    member: str = "member-1"
    _count: int = field(default=0)

    def acquire(self, start: int, lost: OffsetRange | None = None) -> StagedCommit:
        """Take the partition over at `start`."""
        return self._commit(
            StagedCommit(
                commit_id=self._next_id(),
                kind="acquire",
                consumer=self.consumer.name,
                member=self.member,
                topic_ids={self.tp.topic: self.topic_id},
                starts={self.tp: start},
                lost={} if lost is None else {self.tp: lost},
            ),
            [],
        )

    def batch(
        self, start: int, end: int, windows: Mapping[str, list[int]], dead: list[int] | None = None, time: int | None = None
    ) -> StagedCommit:
        """Account for [start, end) with the rows of `windows` (window → offsets) and dead letters; `time` is their latest."""
        dead = dead or []
        if dead:
            self.write_dead(dead)
        rows = sum(len(offsets) for offsets in windows.values())
        return self._commit(
            StagedCommit(
                commit_id=self._next_id(),
                kind="batch",
                consumer=self.consumer.name,
                member=self.member,
                ranges={self.tp: OffsetRange(start, end)},
                rows=rows,
                dead_letters=len(dead),
                skipped=end - start - rows - len(dead),
                windows={window: WindowChange(len(offsets), 100, 1) for window, offsets in windows.items()},
                high={self.tp: end + 5},
                times={} if time is None else {self.tp: time},
            ),
            [(window, offset) for window, offsets in windows.items() for offset in offsets],
        )

    def move(self, start: int, moved: OffsetRange, by: str, why: str) -> StagedCommit:
        """Set the position to `start`."""
        return self._commit(
            StagedCommit(
                commit_id=self._next_id(),
                kind="move",
                consumer=self.consumer.name,
                member=self.member,
                starts={self.tp: start},
                moved={self.tp: moved},
                by=by,
                why=why,
            ),
            [],
        )

    def plant(self, window: str, offset: int) -> None:
        """Write a row that no commit of ingestion accounts for."""
        self._append([(window, offset)], None)

    def write_dead(self, offsets: list[int]) -> None:
        """Write dead letters."""
        write_deltalake(self.consumer.dead_letters, self._rows([("2024-01-01", offset) for offset in offsets]), mode="append")

    def _commit(self, commit: StagedCommit, rows: list[tuple[str, int]]) -> StagedCommit:
        self._append(rows, commit)
        return commits(self.consumer.staged)[-1]

    def _append(self, rows: list[tuple[str, int]], commit: StagedCommit | None) -> None:
        properties = CommitProperties(custom_metadata={METADATA_KEY: commit.to_json()}) if commit else None
        write_deltalake(
            self.consumer.staged, self._rows(rows), mode="append", partition_by=["_window"], commit_properties=properties
        )

    def _rows(self, rows: list[tuple[str, int]]) -> pa.Table:
        count = len(rows)
        return pa.table(
            {
                "_topic": pa.array([self.tp.topic] * count, pa.string()),
                "_topic_id": pa.array([self.topic_id] * count, pa.string()),
                "_partition": pa.array([self.tp.partition] * count, pa.int32()),
                "_offset": pa.array([offset for _, offset in rows], pa.int64()),
                "_window": pa.array([window for window, _ in rows], pa.string()),
            }
        )

    def _next_id(self) -> str:
        self._count += 1
        return f"{self.member}-{self._count:04d}-commit"


def version_of(consumer: Consumer) -> int:
    """The staged table's version."""
    return DeltaTable(consumer.staged).version()
