"""Where every consumer stands: the topic's watermarks, the table's positions, the group's offsets, the tables themselves, and
what Dagster knows of it. Asks Kafka and reads logs; what Dagster knows is handed in, so that `weir status` works without it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.clock import moment
from consumers.config import Consumer
from consumers.errors import WeirError
from consumers.staging.local import table_path
from consumers.staging.log import latest
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition, Watermarks

_RECENT = 20
COLUMNS = {
    "consumer": "string",
    "topic": "string",
    "members": "string",
    "lag": "int",
    "time lag": "string",
    "complete through": "string",
    "rows": "int",
    "files": "int",
    "dead letters": "int",
    "last commit": "string",
    "state": "string",
}
"""The columns of the table of all consumers, with Dagster's types. `dead letters` are those that no replay has made rows."""


class Asked(Protocol):
    """What is asked of a cluster."""

    def topics(self) -> list[str]: ...

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]: ...

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]: ...


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
    topic: str = ""


@dataclass(frozen=True)
class TableStatus:
    """A Delta table: its version, rows, files, bytes."""

    path: str
    version: int
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Running:
    """What Dagster knows of a consumer. `members` are runs that are not over, of `wanted`; `on`: its sensor is switched on.

    `time_lag` is for how many seconds the oldest record has waited; every record up to the event time `valid_through` (seconds
    since the epoch) is staged. None where it is not known.
    """

    members: int
    wanted: int
    on: bool
    time_lag: float | None = None
    valid_through: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class ConsumerStatus:
    """A consumer. `error` says why its partitions are not known; `last_commit_ms` is since the epoch.

    `unresolved` are dead letters that no replay has made rows. `running` is None where Dagster was not asked.
    """

    name: str
    topic: str
    partitions: tuple[PartitionStatus, ...]
    staged: TableStatus | None
    dead_letters: TableStatus | None
    last_commit_ms: int | None
    error: str | None = None
    unresolved: int = 0
    running: Running | None = None

    @property
    def lag(self) -> int:
        """Records that are not staged yet."""
        return sum(p.lag for p in self.partitions)

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words; empty while all is well."""
        gone = [f"{self.name}: {p.topic or self.topic}/{p.partition}: {p.gone}" for p in self.partitions if p.gone]
        stopped = [f"{self.name}: {self.running.problem}"] if self.running is not None and self.running.problem else []
        return [*([self.error] if self.error else []), *gone, *stopped]

    @property
    def state(self) -> str:
        """What the consumer does, in words."""
        if any(p.gone for p in self.partitions):
            return "offsets are gone"
        if self.error:
            return "not known"
        if self.running is not None and self.running.problem:
            return "waits for a person"
        if self.running is not None and self.running.members:
            return "running"
        done = "caught up" if self.lag == 0 else "records wait"
        return f"{done}, sensor switched off" if self.running is not None and not self.running.on else done


def row(status: ConsumerStatus) -> tuple[str | int, ...]:
    """A consumer's line in the table of all consumers, in the order of `COLUMNS`; `-` is not known, as is a lag of -1."""
    running, staged = status.running, status.staged
    return (
        status.name,
        status.topic,
        f"{running.members}/{running.wanted}" if running is not None else "-",
        -1 if status.error else status.lag,
        _seconds(running.time_lag if running is not None else None),
        _moment(running.valid_through if running is not None else None),
        staged.rows if staged is not None else 0,
        staged.files if staged is not None else 0,
        status.unresolved,
        _moment(None if status.last_commit_ms is None else status.last_commit_ms / 1000),
        status.state,
    )


def consumer_status(consumer: Consumer, admin: Asked | WeirError, running: Running | None = None) -> ConsumerStatus:
    """Look at Kafka and at the tables. Why Kafka cannot be asked is told in `error`; the tables are shown all the same."""
    error: str | None = None
    partitions: tuple[PartitionStatus, ...] = ()
    try:
        if isinstance(admin, WeirError):
            raise admin
        partitions = _partitions(consumer, admin)
    except WeirError as problem:
        error = str(problem)
    staged, dead_letters = opened(consumer.staged), opened(consumer.dead_letters)
    return ConsumerStatus(
        name=consumer.name,
        topic=consumer.config.source,
        partitions=partitions,
        staged=table_status(staged),
        dead_letters=table_status(dead_letters),
        last_commit_ms=_last_commit(staged),
        error=error,
        unresolved=_unresolved(dead_letters),
        running=running,
    )


def opened(path: Path) -> DeltaTable | None:
    """The newest version of a table; None when there is no table."""
    return DeltaTable(path) if DeltaTable.is_deltatable(str(path)) else None


def table_status(table: DeltaTable | None) -> TableStatus | None:
    """A table's size from its log alone."""
    if table is None:
        return None
    files = pa.table(table.get_add_actions(flatten=True))
    return TableStatus(
        path=str(table_path(table)),
        version=table.version(),
        rows=_sum(files["num_records"]),
        files=files.num_rows,
        bytes=_sum(files["size_bytes"]),
    )


def _partitions(consumer: Consumer, admin: Asked) -> tuple[PartitionStatus, ...]:
    topics = consumer.config.topics_among(admin.topics)
    return tuple(status for topic in topics for status in _partitions_of(consumer, topic, admin))


def _partitions_of(consumer: Consumer, topic: str, admin: Asked) -> list[PartitionStatus]:
    marks = admin.watermarks(topic)
    group = admin.group_offsets(consumer.group, topic)
    positions = committed_positions(consumer.staged, consumer.name, topic, len(marks))
    return [
        PartitionStatus(
            partition=tp.partition,
            low=mark.low,
            high=mark.high,
            position=positions.get(tp),
            group_offset=group.get(tp),
            lag=mark.lag(positions.get(tp, mark.low)),
            gone=_gone(positions.get(tp), mark),
            topic=topic,
        )
        for tp, mark in sorted(marks.items())
    ]


def _gone(position: int | None, mark: Watermarks) -> str:
    if position is None or mark.low <= position <= mark.high:
        return ""
    if position < mark.low:
        return f"offsets {position} to {mark.low - 1} are gone from the topic (retention)"
    return f"the topic ends at {mark.high}, before the committed {position}: it was recreated or cut short"


def _unresolved(dead_letters: DeltaTable | None) -> int:
    """Dead letters that were not resolved, from the log's statistics."""
    if dead_letters is None:
        return 0
    files = pa.table(dead_letters.get_add_actions(flatten=True))
    nulls = "null_count._resolved_at"
    # Files from before there were replays have no such column: all of theirs is unresolved.
    open_ = pc.coalesce(files[nulls], files["num_records"]) if nulls in files.column_names else files["num_records"]
    return _sum(open_)


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else moment(seconds)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _last_commit(staged: DeltaTable | None) -> int | None:
    recent = [] if staged is None else [commit for commit in latest(staged, _RECENT) if commit.kind == "batch"]
    return recent[-1].committed_at_ms if recent else None


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)
