"""Rows and dead letters between decoding and the commit: what a batch has become, and what is waiting to be written."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import Window
from consumers.formats import Decoded, Decoder, Reject
from consumers.processing.strategies.dead_letters.letters import letters_of
from consumers.processing.strategies.protocol import Message
from consumers.staging.schema import VALUE, WINDOW
from consumers.staging.windows import window_keys
from consumers.types import RECORD_COLUMNS, OffsetRange, Ranges, TopicPartition, join_ranges

_MICROS = pa.timestamp("us", "UTC")
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999
_NEVER = -(2**63)
_NO_TIME = "the record has no timestamp between the years 1 and 9999, so it belongs to no window"


@dataclass(frozen=True, slots=True)
class Shaped:
    """A record batch as rows of the staged table (with the window column), and as dead letters.

    `times` is how far event time has come in each partition (milliseconds since the epoch), what is dated in the future left out.
    """

    rows: pa.Table
    rejects: pa.Table | None
    ranges: Ranges
    records: int
    nbytes: int
    times: Mapping[TopicPartition, int] = field(default_factory=dict)


def shape(
    message: Message[pa.RecordBatch],
    decoder: Decoder,
    window: Window,
    labels: Mapping[TopicPartition, str],
    now_ms: int,
    keep_raw: bool = False,
) -> Shaped:
    """Decode a batch. A record without a value is a row (a tombstone); one that has no window is a dead letter.

    With `keep_raw` rows have their record's bytes, too.
    What the decoder passed over counts among neither.
    """
    records = message.payload
    decoded = decoder.decode(records)
    tombstone = records["value"].is_null() if records["value"].null_count else None
    origin = _origin(records, message.ranges, labels)
    rows, taken = _placed(decoded, origin, tombstone, window)
    if keep_raw:
        rows = rows.append_column(VALUE, records["value"].take(taken))
    lost_window = () if len(taken) == len(decoded.indices) else _unplaced(decoded.indices, taken)
    rejects = _rejected(records, origin, [*decoded.rejects, *lost_window], window, now_ms)
    count = len(decoded.indices) + len(decoded.rejects)
    if message.rejected:
        earlier = _rejected_before(message, window, labels, now_ms)
        count += earlier.num_rows
        rejects = earlier if rejects is None else _in_order(rejects, earlier)
    nbytes = rows.nbytes + (rejects.nbytes if rejects is not None else 0)
    return Shaped(rows, rejects, message.ranges, count, int(nbytes), _times(records, decoded, message.ranges, window, now_ms))


def _rejected_before(
    message: Message[pa.RecordBatch], window: Window, labels: Mapping[TopicPartition, str], now_ms: int
) -> pa.Table:
    """Dead letters that earlier strategies found, whose records are in the message's source only."""
    letters = letters_of(message)
    records = letters.select(RECORD_COLUMNS.names)
    rejects = [Reject(index, reason) for index, reason in enumerate(letters["reason"].to_pylist())]
    return _in_order(_rejected(records, _origin(records, message.ranges, labels), rejects, window, now_ms))


def _in_order(*tables: pa.Table) -> pa.Table:
    """Dead letters by partition and offset."""
    return pa.concat_tables(tables).unify_dictionaries().sort_by([("_partition", "ascending"), ("_offset", "ascending")])


def _origin(records: pa.RecordBatch, ranges: Ranges, labels: Mapping[TopicPartition, str]) -> pa.Table:
    """Where each record came from: topic, topic id, partition, offset, timestamp, key, headers."""
    count = records.num_rows
    topic = next((tp.topic for tp in ranges), "")
    known = sorted({labels.get(tp, "") for tp in ranges})
    if len(known) <= 1:
        label = _constant(known[0] if known else "", count)
    else:
        by_partition = {tp.partition: known.index(labels.get(tp, "")) for tp in ranges}
        codes = [by_partition[p] for p in records["partition"].to_pylist()]
        label = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(known, pa.string()))
    stamps = records["timestamp"]
    millis = stamps.cast(pa.int64())
    sane = pc.and_(pc.greater_equal(millis, _FIRST_MS), pc.less_equal(millis, _LAST_MS))
    stamps = pc.if_else(sane, stamps, pa.scalar(None, stamps.type)).cast(_MICROS)
    return pa.table(
        {
            "_topic": _constant(topic, count),
            "_topic_id": label,
            "_partition": records["partition"],
            "_offset": records["offset"],
            "_timestamp": stamps,
            "_key": records["key"],
            "_headers": records["headers"],
        }
    )


def _times(records: pa.RecordBatch, decoded: Decoded, ranges: Ranges, window: Window, now_ms: int) -> dict[TopicPartition, int]:
    """The latest event time of each partition. Without a window field every record tells the time, whatever becomes of it."""
    if window.field is None:
        partition, times = records["partition"], records["timestamp"]
    else:
        partition, times = records["partition"].take(decoded.indices), decoded.rows[window.field]
    millis = pc.fill_null(times.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()), _NEVER).to_numpy()
    latest = np.full(max((tp.partition for tp in ranges), default=-1) + 1, _NEVER)
    np.maximum.at(latest, partition.to_numpy(), np.where(millis <= now_ms, millis, _NEVER))
    return {tp: int(latest[tp.partition]) for tp in ranges if latest[tp.partition] != _NEVER}


def _constant(text: str, count: int) -> pa.DictionaryArray:
    """One text for every row, as a dictionary, which the Parquet writer takes over as it is."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text], pa.string()))


def _placed(decoded: Decoded, origin: pa.Table, tombstone: pa.Array | None, window: Window) -> tuple[pa.Table, pa.Array]:
    """Decoded rows beside their origin and window; rows without a window are left out. Also the index of each row."""
    whole = len(decoded.indices) == origin.num_rows
    beside = origin if whole else origin.take(decoded.indices)
    count = len(decoded.indices)
    dead = pa.array(np.zeros(count, np.bool_)) if tombstone is None else tombstone.take(decoded.indices)
    times = beside["_timestamp"]
    if window.field is not None:
        own = decoded.rows[window.field]
        # A tombstone has no fields, so its own timestamp places it.
        times = pc.if_else(dead, times, own.cast(_MICROS)) if tombstone is not None else own
    keys = window_keys(times, window.every)
    # Without the declared nullability, which does not hold for tombstones.
    rows = pa.table(decoded.rows.columns, names=decoded.rows.column_names)
    for name in beside.column_names:
        rows = rows.append_column(name, beside[name])
    rows = rows.append_column("_tombstone", dead).append_column(WINDOW, keys)
    if not keys.null_count:
        return rows, decoded.indices
    there = keys.is_valid()
    return rows.filter(there), decoded.indices.filter(there)


def _unplaced(all_indices: pa.Array, taken: pa.Array) -> list[Reject]:
    missing = np.setdiff1d(all_indices.to_numpy(), taken.to_numpy())
    return [Reject(int(i), _NO_TIME) for i in missing]


def _rejected(records: pa.RecordBatch, origin: pa.Table, rejects: list[Reject], window: Window, now_ms: int) -> pa.Table | None:
    if not rejects:
        return None
    rejects = sorted(rejects, key=lambda r: r.index)
    at = pa.array([r.index for r in rejects], pa.int32())
    rows = origin.take(at)
    rows = rows.append_column(VALUE, records["value"].take(at))
    rows = rows.append_column("_reason", pa.array([r.reason for r in rejects], pa.string()))
    rows = rows.append_column(WINDOW, window_keys(rows["_timestamp"], window.every))
    return rows.append_column("_rejected_at", pa.array([now_ms] * len(rejects), pa.timestamp("ms", "UTC")).cast(_MICROS))


@dataclass
class Buffer:
    """What waits for the next commit. One thread's own."""

    shaped: list[Shaped] = field(default_factory=list)
    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    rows: int = 0
    records: int = 0
    nbytes: int = 0
    times: dict[TopicPartition, int] = field(default_factory=dict)
    since: float | None = None
    decode_seconds: float = 0.0
    more: bool = False

    def add(self, shaped: Shaped, now: float, more: bool = False) -> None:
        """Take a shaped batch; `more` as in `Message`. Raises ValueError when its ranges do not follow those before."""
        self.ranges = join_ranges(self.ranges, shaped.ranges)
        self.shaped.append(shaped)
        self.more = more
        self.rows += shaped.rows.num_rows
        self.records += shaped.records
        self.nbytes += shaped.nbytes
        for tp, at in shaped.times.items():
            self.times[tp] = max(at, self.times.get(tp, at))
        self.since = now if self.since is None else self.since

    def table(self) -> pa.Table:
        """All rows."""
        return pa.concat_tables([s.rows for s in self.shaped])

    def rejects(self) -> pa.Table | None:
        """All dead letters."""
        found = [s.rejects for s in self.shaped if s.rejects is not None]
        return pa.concat_tables(found) if found else None
