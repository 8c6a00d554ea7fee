"""Staged tables of readings for `benchmarks.jobs`, with the commits that ingestion would have made, and functions over them.

Spark's workers import this module for nothing, so what it needs of Spark it imports inside of functions.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake

from consumers.staging.log import METADATA_KEY, StagedCommit, WindowChange
from consumers.staging.schema import WINDOW
from consumers.types import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TP = TopicPartition("readings", 0)
SENSORS = 20


def hours(count: int) -> list[str]:
    """The first `count` hourly windows from 2013 on."""
    start = datetime(2013, 1, 1)
    return [(start + timedelta(hours=number)).strftime("%Y-%m-%d-%H") for number in range(count)]


def stage(table: Path | DeltaTable, windows: Sequence[str], first: int, rows: int) -> int:
    """One commit of a file with `rows` readings for each window, offsets from `first` on; the offset after the last."""
    found = _readings(windows, first, rows)
    properties = CommitProperties(custom_metadata={METADATA_KEY: _commit(windows, first, rows).to_json()})
    write_deltalake(table, found, mode="append", partition_by=[WINDOW], commit_properties=properties)
    return first + rows * len(windows)


def stage_one_by_one(table: Path, windows: Sequence[str], rows: int) -> None:
    """A commit for each window. The log is written by hand: through delta-rs ten thousand commits take many minutes."""
    offset = stage(table, windows[:1], 0, rows)
    log = table / "_delta_log"
    for version, window in enumerate(windows[1:], 1):
        path = Path(f"{WINDOW}={window}") / f"part-{version:032x}.zstd.parquet"
        (table / path).parent.mkdir()
        pq.write_table(_readings([window], offset, rows).drop_columns(WINDOW), table / path, compression="zstd")
        add = {
            "path": path.as_posix(),
            "partitionValues": {WINDOW: window},
            "size": (table / path).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
        }
        info = {"timestamp": 0, "operation": "WRITE", METADATA_KEY: _commit([window], offset, rows).to_json()}
        (log / f"{version:020d}.json").write_text(f"{json.dumps({'commitInfo': info})}\n{json.dumps({'add': add})}\n")
        offset += rows
        if version % 100 == 99 and version + 100 > len(windows):
            DeltaTable(table).create_checkpoint()


def _readings(windows: Sequence[str], first: int, rows: int) -> pa.Table:
    count, chance = rows * len(windows), np.random.default_rng(first)
    sensors = pa.array([f"s{number}" for number in range(SENSORS)])
    columns = {
        "sensor": sensors.take(pa.array(chance.integers(SENSORS, size=count))),
        "value": pa.array(chance.integers(1_000, size=count)),
        "_offset": pa.array(np.arange(first, first + count)),
        "_tombstone": pa.array(np.zeros(count, dtype=bool)),
        WINDOW: pa.array(windows).take(pa.array(np.repeat(np.arange(len(windows)), rows))),
    }
    return pa.table(columns)


def _commit(windows: Sequence[str], first: int, rows: int) -> StagedCommit:
    count = rows * len(windows)
    return StagedCommit(
        commit_id=f"{first:012d}-of-the-benchmark",
        kind="batch",
        consumer="readings",
        member="benchmark",
        ranges={TP: OffsetRange(first, first + count)},
        rows=count,
        windows=dict.fromkeys(windows, WindowChange(rows, 2_000, 1)),
    )


def per_sensor(readings: "DataFrame") -> "DataFrame":
    """By window and sensor: how many readings, their sum and the highest."""
    from pyspark.sql import functions as F

    from spark_jobs.staged import records

    values = (F.count(F.lit(1)).alias("readings"), F.sum("value").alias("total"), F.max("value").alias("highest"))
    return records(readings).groupBy(WINDOW, "sensor").agg(*values)
