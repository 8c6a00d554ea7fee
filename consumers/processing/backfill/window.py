"""A window of a staged table, built again: from the records that it came from, by today's definition, in one commit.

What is replaced is decided by (topic, partition, offset), and only below the positions of the snapshot that the commit starts
from. So ingestion goes on beside it: what it adds meanwhile stays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.brokers.protocol import BrokerConsumer
from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import DataLoss, StorageError
from consumers.processing.backfill.decode import Decoded, Shaper
from consumers.processing.backfill.extent import Extent, older, with_named
from consumers.processing.backfill.locate import candidates, in_words, merged, origin, segments
from consumers.processing.backfill.records import has_bytes, records_of
from consumers.processing.backfill.source import Source
from consumers.staging.log import StagedCommit
from consumers.staging.places import Mask, Records, absent_from, by_life, present, ranges_of
from consumers.staging.rewrite import Replacement, Rewriter, Snapshot
from consumers.staging.schema import PLACE, WINDOW, filled
from consumers.types import OffsetRange, Ranges, TopicPartition, hulls

GAP = 1000
"""Wanted offsets further apart than this are read as two ranges."""


@dataclass(frozen=True)
class Choices:
    """What an operator may say: go on where records are gone; read these offsets, too; who wants it, and why."""

    partial: bool = False
    offsets: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    by: str = ""
    why: str = "backfill"


@dataclass(frozen=True)
class Made:
    """What a window is to be: its `rows`, and new `rejects`.

    `seen` are the records that were looked at, `added` and `removed` count records that come or go. `kept` rows could not be read
    again, and `left` rows belong to another window by today's definition: both stay as they are. `lost` are the offsets of what
    could not be read.
    """

    rows: pa.Table
    rejects: pa.Table
    ranges: Ranges
    lost: Ranges
    seen: int
    added: int
    removed: int
    kept: int
    left: int


@dataclass(frozen=True)
class Rebuilt:
    """What became of a window; `commit` is None where it held just that already."""

    window: str
    made: Made
    commit: StagedCommit | None


class Backfill:
    """Builds windows of one consumer again, one after the other. Used by one thread; close it at the end."""

    def __init__(
        self,
        consumer: Consumer,
        connect: Callable[[], BrokerConsumer],
        clock: Clock,
        choices: Choices | None = None,
        shared: bool = False,
    ) -> None:
        """`connect` gives a consumer without a group; it is called once, and only if something must be read from Kafka.

        The `consumer` is of one topic. `shared`: its table has rows of other topics, too, and these stay as they are.

        Raises `StorageError` while nothing was ever staged, and where the table does not have the definition's columns.
        """
        self._consumer = consumer
        self._connect = connect
        self._clock = clock
        self._choices = choices or Choices()
        self._shared = shared
        self._origin = origin(consumer)
        self._shaper = Shaper(consumer)
        self._source: Source | None = None

    def window(self, window: str) -> Rebuilt:
        """Build a window again.

        Raises `DataLoss`, with the window as it was, where some of its records are gone and `partial` is not set.
        """
        made: list[Made] = []

        def make(before: Snapshot) -> Replacement:
            ours, theirs = self._divided(before.rows)
            now = self.make(replace(before, rows=ours))
            made.append(now := replace(now, rows=pa.concat_tables([now.rows, theirs])))
            return Replacement(now.rows, now.rejects, now.ranges, now.lost, self._choices.by, self._choices.why)

        commit = Rewriter(self._consumer, self._clock).rewrite(window, make)
        return Rebuilt(window, made[-1], commit)

    def make(self, before: Snapshot) -> Made:
        """What a window is to be, by what it is. Raises `DataLoss`."""
        letters, _ = self._divided(candidates(self._consumer, before.window, before.positions))
        letters = letters.filter(pa.array(absent_from(before.rows, letters)))
        extent = self._extent(before)
        decoded = Decoded(before.window, self._shaper.schema)
        return self._made(before, decoded, self._decode(before, letters, extent, decoded), extent.gone)

    def reshape(self, before: Snapshot, letters: pa.Table) -> Made:
        """What the rows of a window, and these dead letters, are today, in whichever window. Raises `DataLoss`.

        `before.rows` may have other columns than the definition. Raises `StorageError` where rows that cannot be read again do
        not fit the definition's.
        """
        decoded = Decoded(None, self._shaper.schema)
        unread = self._decode(before, letters, Extent(), decoded)
        try:
            staying = filled(before.rows.filter(pa.array(unread)), self._shaper.schema)
        except pa.ArrowInvalid as error:
            raise StorageError(
                f"window {before.window} of {self._consumer.name}: rows that cannot be read again do not fit the definition: "
                f"{error}. Nothing was written for this window."
            ) from error
        own = pa.array(~absent_from(before.rows, decoded.rejects))
        return Made(
            rows=pa.concat_tables([decoded.rows, staying]),
            rejects=decoded.rejects.filter(own),
            ranges=ranges_of(decoded.seen),
            lost=ranges_of(staying),
            seen=decoded.seen.num_rows,
            added=decoded.rows.num_rows,
            removed=0,
            kept=staying.num_rows,
            left=0,
        )

    def close(self) -> None:
        """Let go of the broker."""
        if self._source is not None:
            self._source.close()

    def _extent(self, before: Snapshot) -> Extent:
        extent = Extent()
        if any(self._origin.first.values()) and self._origin.is_of(self._open().topic_id):
            extent = older(before.window, self._consumer.config.window.every, self._origin, before.positions, self._open())
        named = {tp: asked for tp, asked in self._choices.offsets.items() if tp.topic == self._consumer.config.topic}
        return with_named(extent, named, before.positions)

    def _divided(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Rows of the consumer's topic, and of others."""
        if not self._shared:
            return rows, rows.slice(0, 0)
        ours = pc.equal(rows["_topic"].cast(pa.string()), self._consumer.config.topic)
        return rows.filter(ours), rows.filter(pc.invert(ours))

    def _decode(self, before: Snapshot, letters: pa.Table, extent: Extent, into: Decoded) -> Mask:
        """Decode what is there of a window's records. Returns which of its rows are not. Raises `DataLoss`."""
        now_ms = int(self._clock.time() * 1000)
        whole = has_bytes(before.rows)
        for kept in (before.rows.filter(whole), letters):
            for records, labels in records_of(kept):
                self._shaper.add(into, records, labels, now_ms)
        wanted = before.rows.filter(pc.invert(whole)).select(PLACE)
        if wanted.num_rows or extent.ranges:
            self._read(wanted, extent.ranges, into.seen, into, now_ms)
        unread = absent_from(into.seen, before.rows)
        if (unread.any() or extent.gone) and not self._choices.partial:
            raise self._refusal(before.window, before.rows.filter(pa.array(unread)), extent.gone)
        return unread

    def _read(self, wanted: pa.Table, more: Ranges, known: pa.Table, into: Decoded, now_ms: int) -> None:
        """Read from Kafka what is `wanted`, as far as it is there, and all of `more` but what is `known`."""
        source = self._open()
        if not self._origin.is_of(source.topic_id):
            return
        plan = {tp: [extra] for tp, extra in more.items()}
        for life in by_life(wanted):
            if life.label == self._origin.label(life.tp, source.topic_id):
                plan.setdefault(life.tp, []).extend(segments(life, GAP))
        asked, had = Records(wanted), Records(known)
        for batch in source.read({tp: merged(ranges) for tp, ranges in plan.items()}):
            places = self._places(batch.records, source.topic_id)
            chosen = ~asked.lack(places) | (_inside(batch.records, more) & had.lack(places))
            kept = pa.array(chosen)
            labels = places["_topic_id"].filter(kept).combine_chunks()
            self._shaper.add(into, batch.records.filter(kept), labels, now_ms)

    def _places(self, records: pa.RecordBatch, topic_id: str) -> pa.Table:
        topic, count = self._consumer.config.topic, records.num_rows
        known = {p: self._origin.label(TopicPartition(topic, p), topic_id) for p in records["partition"].unique().to_pylist()}
        labels = [known[p] for p in records["partition"].to_pylist()]
        return pa.table([[topic] * count, pa.array(labels, pa.string()), records["partition"], records["offset"]], names=PLACE)

    def _made(self, before: Snapshot, decoded: Decoded, unread: Mask, gone: Ranges) -> Made:
        rows, rejects = self._new(before, decoded)
        left = ~absent_from(decoded.others, before.rows)
        staying = before.rows.filter(pa.array(left | unread))
        rows = pa.concat_tables([rows, staying])
        return Made(
            rows=rows,
            rejects=rejects,
            ranges=ranges_of(decoded.seen),
            lost=hulls(ranges_of(before.rows.filter(pa.array(unread))), gone),
            seen=decoded.seen.num_rows,
            added=int(absent_from(before.rows, rows).sum()),
            removed=int(absent_from(rows, before.rows).sum()),
            kept=int(unread.sum()),
            left=int(left.sum()),
        )

    def _new(self, before: Snapshot, decoded: Decoded) -> tuple[pa.Table, pa.Table]:
        """The rows that records give, and the dead letters that they become, without what stands elsewhere already."""
        rows, rejects = decoded.rows, decoded.rejects
        table = DeltaTable(self._consumer.staged)
        came = absent_from(before.rows, rows)
        rows = rows.filter(pa.array(~came | ~_there(table, rows, came)))
        own = ~absent_from(before.rows, rejects)
        here = pc.fill_null(pc.equal(rejects[WINDOW], before.window), True).to_numpy(zero_copy_only=False)
        new = ~own & here
        if new.any():
            new &= ~_there(table, rejects, new)
            if DeltaTable.is_deltatable(str(self._consumer.dead_letters)):
                new &= ~_there(DeltaTable(self._consumer.dead_letters), rejects, new)
        return rows, rejects.filter(pa.array(own | new))

    def _open(self) -> Source:
        if self._source is None:
            self._source = Source(self._connect(), self._clock)
        return self._source

    def _refusal(self, window: str, unread: pa.Table, gone: Ranges) -> DataLoss:
        parts = [in_words(unread)] if unread.num_rows else []
        parts += [f"{tp}: {r.start}-{r.end - 1}, which may have held records of it" for tp, r in sorted(gone.items())]
        return DataLoss(
            f"window {window} of {self._consumer.name}: Kafka no longer holds some of its records: {'; '.join(parts)}. The "
            "window is as it was. To build the rest of it again, launch the backfill with the tag `weir/partial: true`, or with "
            "`partial: true` in its config: rows that cannot be read again stay as they are, and the loss is recorded."
        )


def _there(table: DeltaTable, rows: pa.Table, which: Mask) -> Mask:
    """Those of `which` that a table holds already."""
    found = np.zeros(rows.num_rows, np.bool_)
    found[which] = present(table, rows.filter(pa.array(which)))
    return found


def _inside(records: pa.RecordBatch, ranges: Ranges) -> Mask:
    found = np.zeros(records.num_rows, np.bool_)
    partitions, offsets = records["partition"].to_numpy(), records["offset"].to_numpy()
    for tp, span in ranges.items():
        found |= (partitions == tp.partition) & (offsets >= span.start) & (offsets < span.end)
    return found
