"""Small parts that several tests of the core need: definitions, records, and what a table holds."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from consumers.config import Consumer, ConsumerConfig
from consumers.processing.strategies.protocol import Message
from consumers.types import HEADERS, RECORD_COLUMNS, OffsetRange, RecordBatch, TopicPartition

TP = TopicPartition("t", 0)
DAY_MS = 1_356_998_400_000  # 2013-01-01


def config(**changes: Any) -> ConsumerConfig:
    return ConsumerConfig.model_validate({"topic": "t", "schema": {"a": "long"}, "window": "day"} | changes)


def consumer(folder: Path, **changes: Any) -> Consumer:
    return Consumer(name="c", config=config(**changes), staged=folder / "staged", dead_letters=folder / "dead")


def records(
    values: Sequence[bytes | None],
    first: int = 0,
    partition: int = 0,
    stamps: Sequence[int | None] | None = None,
    headers: Sequence[Any] | None = None,
) -> pa.RecordBatch:
    count = len(values)
    times = pa.array(stamps if stamps is not None else [DAY_MS] * count, pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition] * count, pa.int32()),
            pa.array(range(first, first + count), pa.int64()),
            times.cast(RECORD_COLUMNS.field("timestamp").type),
            pa.array([b"k%d" % i for i in range(count)], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(headers, HEADERS) if headers is not None else pa.nulls(count, HEADERS),
        ],
        schema=RECORD_COLUMNS,
    )


def batch(values: Sequence[bytes | None], first: int = 0, partition: int = 0, **more: Any) -> RecordBatch:
    tp = TopicPartition("t", partition)
    held = records(values, first, partition, **more)
    return RecordBatch("t", held, {tp: OffsetRange(first, first + len(values))})


def message(values: Sequence[bytes | None], first: int = 0, partition: int = 0, **more: Any) -> Message[pa.RecordBatch]:
    """What the engine makes of a polled batch."""
    polled = batch(values, first, partition, **more)
    return Message(polled.records, polled.ranges, (polled.records,))


def contents(table: Path) -> pa.Table:
    """All rows, read file by file without delta-rs's or Arrow's datasets."""
    found = DeltaTable(table)
    schema = pa.schema(found.schema().to_arrow())
    files = [pq.ParquetFile(uri).read() for uri in found.file_uris()]
    wanted = pa.schema([field for field in schema if field.name != "_window"])
    # A file that delta-rs has rewritten holds other Arrow types of the same Delta type.
    return pa.concat_tables([f.select(wanted.names).cast(wanted) for f in files]) if files else schema.empty_table()


def offsets(table: Path) -> Counter[tuple[str, int, int]]:
    """How often each (topic id, partition, offset) is in a table."""
    rows = contents(table).select(["_topic_id", "_partition", "_offset"]).to_pydict()
    return Counter(zip(rows["_topic_id"], rows["_partition"], rows["_offset"], strict=True))
