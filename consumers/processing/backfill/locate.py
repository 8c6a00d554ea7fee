"""What the tables know of offsets: where a consumer began, and which dead letters may belong to a window.

Below the position and from the first start on, the records that can give a row of a window are the window's rows and dead letters
that nobody has resolved. So the tables alone say which offsets to read, and Kafka is asked only for what is older than that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from consumers.config import Consumer
from consumers.errors import StorageError
from consumers.staging import positions as ids
from consumers.staging.local import local_dataset, text
from consumers.staging.log import StagedCommit, newest_first
from consumers.staging.places import Life, Mask, by_life, runs
from consumers.staging.schema import DEAD_LETTERS, PLACE, WINDOW, filled
from consumers.types import OffsetRange, Positions, TopicPartition, topic_hash

LETTER = (*PLACE, "_timestamp", "_key", "_headers", "_value", WINDOW)
"""What is read of a dead letter."""


@dataclass(frozen=True)
class Origin:
    """The topic that a table's positions belong to: its hash, the first offsets ever accounted for, and where logs were cut."""

    topic: int | None
    first: Positions
    cuts: Mapping[TopicPartition, int]

    def is_of(self, topic_id: str) -> bool:
        """Whether a topic with this id is the one. Brokers that know no ids are believed."""
        return not topic_id or self.topic in (None, topic_hash(""), topic_hash(topic_id))

    def label(self, tp: TopicPartition, topic_id: str) -> str:
        """What rows of a partition's present log have in `_topic_id`."""
        return ids.label(topic_id, self.cuts.get(tp, 0))


def origin(consumer: Consumer) -> Origin:
    """Read a staged table's log. Raises `StorageError` while nothing was ever staged."""
    first: Positions = {}
    if DeltaTable.is_deltatable(str(consumer.staged)):
        table = DeltaTable(consumer.staged)
        first = _first_starts(newest_first(table), consumer.config.topic)
    if not first:
        raise StorageError(
            f"consumer {consumer.name} has not begun to stage: {consumer.staged} has no position, so nothing can be built again "
            "yet. Nothing was written. Start ingestion, then try again."
        )
    cuts = {tp: ids.position(table, consumer.name, tp).cut for tp in first}
    return Origin(ids.known_topic(table, consumer.name, consumer.config.topic), first, cuts)


def _first_starts(newest_first: Iterable[StagedCommit], topic: str) -> dict[TopicPartition, int]:
    """The lowest offset at which each partition of the newest topic was ever begun."""
    newest = ""
    first: dict[TopicPartition, int] = {}
    for commit in newest_first:
        found = commit.topic_ids.get(topic, "")
        if newest and found and found != newest:
            break
        newest = newest or found
        for tp, start in commit.starts.items():
            if tp.topic == topic:
                first[tp] = min(first.get(tp, start), start)
    return first


def candidates(consumer: Consumer, window: str, positions: Positions) -> pa.Table:
    """Dead letters that today's definition may make rows of `window`, as `unresolved` has them.

    A dead letter's own window is cut by the record's timestamp. Where the consumer's windows are cut by a field, any dead letter
    may belong to any window.
    """
    if consumer.config.window.field is not None:
        return unresolved(consumer, positions)
    return unresolved(consumer, positions, (text(WINDOW) == window) | pc.field(WINDOW).is_null())


def unresolved(consumer: Consumer, positions: Positions, which: ds.Expression | None = None) -> pa.Table:
    """Final dead letters that are not rows yet, with their bytes (columns `LETTER`): all, or those that `which` chooses."""
    schema = pa.schema([DEAD_LETTERS.field(name) for name in LETTER])
    if not DeltaTable.is_deltatable(str(consumer.dead_letters)):
        return schema.empty_table()
    dataset = local_dataset(DeltaTable(consumer.dead_letters))
    wanted = pc.scalar(True) if which is None else which
    for name in ("_resolved_at", "_commit_id"):
        if name in dataset.schema.names:
            wanted &= pc.field(name).is_null()
    found = filled(dataset.to_table(columns=list(LETTER), filter=wanted), schema)
    return found.filter(pa.array(~at_or_past(DeltaTable(consumer.staged), consumer, found, positions)))


def at_or_past(table: DeltaTable, consumer: Consumer, rows: pa.Table, positions: Positions) -> Mask:
    """Which of some rows stand at or past these positions, in the incarnation that the table's own belong to."""
    found = np.zeros(rows.num_rows, np.bool_)
    for life in by_life(rows):
        if ids.is_current(table, consumer.name, life.tp, life.label):
            found[life.rows] = life.offsets >= positions.get(life.tp, 0)
    return found


def segments(life: Life, gap: int) -> list[OffsetRange]:
    """The ranges to read so as to come by the offsets of some rows: more than `gap` apart, the next range begins."""
    offsets = np.sort(life.offsets)
    parts = np.split(offsets, np.flatnonzero(np.diff(offsets) > gap) + 1)
    return [OffsetRange(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets, ascending and without overlap."""
    found: list[OffsetRange] = []
    for step in sorted(ranges, key=lambda r: r.start):
        if found and step.start <= found[-1].end:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].end, step.end))
        else:
            found.append(step)
    return found


def in_words(rows: pa.Table) -> str:
    """Which records some rows are, for a message: `t/0: 3, 7-9 and 4 more; t/1: 5`."""
    lives = sorted(by_life(rows), key=lambda each: each.tp)
    return "; ".join(f"{life.tp}: {runs(np.sort(life.offsets))}" for life in lives)
