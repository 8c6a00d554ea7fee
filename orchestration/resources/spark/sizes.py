"""Spark's settings by the size of what a request reads. Knows files and numbers, no session."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs.request import Request, Source
from spark_jobs.staged import WINDOW

MIB = 2**20
_SPLIT = 32 * MIB
_LEAST = MIB // 16
_UNPACKED = 4  # what a byte of Parquet becomes in a shuffle, roughly
_MOST_PARTITIONS = 4000

UNKNOWN_CORES = 4
"""Where only the cluster knows how many tasks it runs at a time."""


def sized(read: int, cores: int) -> dict[str, str]:
    """Settings for a request that reads `read` bytes of Parquet where `cores` tasks run at a time.

    How files are split depends on the bytes alone: the same request is split alike on a laptop and on a cluster, so that sums of
    fractions are added up in the same order.
    """
    target = _target(read)
    busy = min(cores, math.ceil(read / MIB))  # a task for less than a MiB costs more than it computes
    partitions = min(max(1, busy, math.ceil(read * _UNPACKED / target)), _MOST_PARTITIONS)
    return {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(target),
        # By default a MiB: few rows in thousands of windows, each of them a file, would be written by one core.
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": str(_LEAST),
        # Java code made for less than a MiB takes a second to compile, and saves none.
        "spark.sql.codegen.wholeStage": str(read >= MIB).lower(),
        "spark.sql.files.minPartitionNum": str(max(1, math.ceil(read / _SPLIT))),
        "spark.sql.autoBroadcastJoinThreshold": str(_broadcast(read)),
        # Delta reads its own log as a Spark job of 50 tasks unless told otherwise: seconds for a table of a few files.
        "spark.databricks.delta.snapshotPartitions": str(min(max(2, read // (1024 * MIB)), 50)),
    }


def _target(read: int) -> int:
    """Bytes of a shuffle's partition, and so of a file of the result: larger tables get fewer, larger files."""
    if read < 10 * 1024 * MIB:
        return 64 * MIB
    return 128 * MIB if read < 1024 * 1024 * MIB else 256 * MIB


def _broadcast(read: int) -> int:
    """Up to which size a side of a join is sent to every task: Spark's 10 MiB, more where the other side is large."""
    return min(max(10 * MIB, read // 100), 100 * MIB)


def bytes_of(request: Request) -> int | None:
    """How much Parquet the request reads, by the Delta log; None where that cannot be told from here."""
    try:
        return sum(size for source in request.inputs.values() for size in _sizes(source))
    except (DeltaError, OSError):
        return None


def _sizes(source: Source) -> Iterator[int]:
    # The log of a table with thousands of commits need not be read for a few files.
    yield from ((Path(source.path) / unquote(file)).stat().st_size for file in source.files or ())
    if source.files is None or source.windows is not None:
        yield from _logged(source)


def _logged(source: Source) -> Iterator[int]:
    # The log is read at that very version: files that were compacted since are not what Spark will read.
    adds = pa.table(DeltaTable(source.path, version=source.version).get_add_actions(flatten=True))
    sizes = adds.column("size_bytes").to_pylist()
    if source.windows is None or f"partition.{WINDOW}" not in adds.column_names:
        yield from sizes
        return
    wanted = frozenset(source.windows)
    windows = adds.column(f"partition.{WINDOW}").to_pylist()
    yield from (size for size, window in zip(sizes, windows, strict=True) if window in wanted)


def cores_of(conf: Mapping[str, str]) -> int | None:
    """How many tasks these settings allow at a time, None where only the cluster knows."""
    instances, each = conf.get("spark.executor.instances"), conf.get("spark.executor.cores", "1")
    most = conf.get("spark.cores.max")
    return int(instances) * int(each) if instances else int(most) if most else None
