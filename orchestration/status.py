"""Where every consumer stands: the topic's watermarks, the table's positions, the group's offsets, and the tables themselves."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.brokers.admin import KafkaAdmin
from consumers.config import Consumer
from consumers.errors import WeirError
from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from consumers.types import Watermarks

_RECENT = 20


@dataclass(frozen=True)
class PartitionStatus:
    """One partition. Offsets are Kafka's; None where nothing is known yet. `lag` is in records.

    `gone` says what the topic no longer holds of what was not staged yet; empty while all is well.
    """

    partition: int
    low: int
    high: int
    position: int | None
    group_offset: int | None
    lag: int
    gone: str = ""


@dataclass(frozen=True)
class TableStatus:
    """A Delta table: its version, rows, files, bytes."""

    path: str
    version: int
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class ConsumerStatus:
    """A consumer. `error` says why its partitions are not known; `last_commit_ms` is since the epoch."""

    name: str
    topic: str
    partitions: tuple[PartitionStatus, ...]
    staged: TableStatus | None
    dead_letters: TableStatus | None
    last_commit_ms: int | None
    error: str | None = None

    @property
    def lag(self) -> int:
        """Records that are not staged yet."""
        return sum(p.lag for p in self.partitions)

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words; empty while all is well."""
        gone = [f"{self.name}: {self.topic}/{p.partition}: {p.gone}" for p in self.partitions if p.gone]
        return [*([self.error] if self.error else []), *gone]


def consumer_status(consumer: Consumer, admin: KafkaAdmin | WeirError) -> ConsumerStatus:
    """Look at Kafka and at the tables. Why Kafka cannot be asked is told in `error`; the tables are shown all the same."""
    error: str | None = None
    partitions: tuple[PartitionStatus, ...] = ()
    try:
        if isinstance(admin, WeirError):
            raise admin
        partitions = _partitions(consumer, admin)
    except WeirError as problem:
        error = str(problem)
    return ConsumerStatus(
        name=consumer.name,
        topic=consumer.config.topic,
        partitions=partitions,
        staged=table_status(consumer.staged),
        dead_letters=table_status(consumer.dead_letters),
        last_commit_ms=_last_commit(consumer.staged),
        error=error,
    )


def table_status(path: Path) -> TableStatus | None:
    """A table's size from its log alone; None when there is no table."""
    if not DeltaTable.is_deltatable(str(path)):
        return None
    table = DeltaTable(path)
    files = pa.table(table.get_add_actions(flatten=True))
    return TableStatus(
        path=str(path),
        version=table.version(),
        rows=_sum(files["num_records"]),
        files=files.num_rows,
        bytes=_sum(files["size_bytes"]),
    )


def _partitions(consumer: Consumer, admin: KafkaAdmin) -> tuple[PartitionStatus, ...]:
    topic = consumer.config.topic
    marks = admin.watermarks(topic)
    group = admin.group_offsets(consumer.group, topic)
    positions = committed_positions(consumer.staged, consumer.name, topic, len(marks))
    return tuple(
        PartitionStatus(
            partition=tp.partition,
            low=mark.low,
            high=mark.high,
            position=positions.get(tp),
            group_offset=group.get(tp),
            lag=mark.lag(positions.get(tp, mark.low)),
            gone=_gone(positions.get(tp), mark),
        )
        for tp, mark in sorted(marks.items())
    )


def _gone(position: int | None, mark: Watermarks) -> str:
    if position is None or mark.low <= position <= mark.high:
        return ""
    if position < mark.low:
        return f"offsets {position} to {mark.low - 1} are gone from the topic (retention)"
    return f"the topic ends at {mark.high}, before the committed {position}: it was recreated or cut short"


def _last_commit(staged: Path) -> int | None:
    if not DeltaTable.is_deltatable(str(staged)):
        return None
    table = DeltaTable(staged)
    recent = [c for c in commits(table, max(-1, table.version() - _RECENT)) if c.kind == "batch"]
    return recent[-1].committed_at_ms if recent else None


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)
