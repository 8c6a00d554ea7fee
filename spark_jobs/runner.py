"""Runs a job function once: pinned inputs in, windows of the output table replaced in one Delta commit.

Needs nothing but PySpark and a session with Delta on its class path, so that a cluster can run it as shipped.
It decides nothing: which windows are to be computed, and from which versions, is in the `Request`.

Every row carries, in the partition column `_inputs`, the fingerprint of what its window was computed from. It
is written with the rows, in the same commit, and lives as long as they do: log cleanup, compaction, `RESTORE`
or a deleted table cannot part the two, and the Delta log alone (partition values of the active files) tells
what every window holds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from spark_jobs.staged import WINDOW

INPUTS = "_inputs"
"""The partition column of output tables that holds the fingerprint of a row's inputs and code."""

JobFunction = Callable[[SparkSession, Mapping[str, DataFrame], Sequence[str]], DataFrame]
"""A job: (session, input name → its rows of the windows, the windows) → the rows of those windows.

A job by windows returns the column `_window`; one that is not gets all rows of its inputs, and no windows.
"""


@dataclass(frozen=True)
class Source:
    """An input table at a fixed Delta version."""

    path: str
    version: int


@dataclass(frozen=True)
class Request:
    """What to compute. `fingerprints` names the windows and what identifies their input; without windows, its
    one key is "".
    """

    job: str
    code_version: str
    inputs: Mapping[str, Source]
    output: str
    fingerprints: Mapping[str, str]

    @property
    def windows(self) -> list[str]:
        """The windows to replace, in order; empty for a table that is replaced as a whole."""
        return sorted(window for window in self.fingerprints if window)


def run(spark: SparkSession, function: JobFunction, request: Request) -> int:
    """Compute, replace and commit; return the output table's new version.

    Raises what the function raises, `ValueError` for a result without the columns it needs, and Delta's
    `DELTA_REPLACE_WHERE_MISMATCH` for rows outside of the requested windows. Nothing is committed then.
    """
    frames = {name: _read(spark, source, request.windows) for name, source in request.inputs.items()}
    result = function(spark, frames, request.windows)
    _check_columns(result, request)
    _writer(_stamp(spark, result, request), request).save(request.output)
    return int(spark.conf.get("spark.databricks.delta.lastCommitVersionInSession") or -1)


def _read(spark: SparkSession, source: Source, windows: Sequence[str]) -> DataFrame:
    frame = spark.read.format("delta").option("versionAsOf", source.version).load(source.path)
    return frame.where(F.col(WINDOW).isin(list(windows))) if windows else frame


def _check_columns(result: DataFrame, request: Request) -> None:
    if request.windows and WINDOW not in result.columns:
        raise ValueError(
            f"{request.job}: the function returned no column {WINDOW}, but the job is computed by window; "
            f"it returned {', '.join(result.columns)}. Nothing was written."
        )
    if INPUTS in result.columns:
        raise ValueError(f"{request.job}: the function returned {INPUTS}, a reserved column. Nothing was written.")


def _stamp(spark: SparkSession, result: DataFrame, request: Request) -> DataFrame:
    """Add the fingerprint. A row of a window that was not asked for gets none here and is refused by
    `replaceWhere`.
    """
    if not request.windows:
        return result.withColumn(INPUTS, F.lit(request.fingerprints[""])).coalesce(1)
    pairs = spark.createDataFrame(sorted(request.fingerprints.items()), f"{WINDOW} string, {INPUTS} string")
    # A window's rows meet in one task, so that it gets one file; large windows are split by adaptive
    # execution.
    return result.join(F.broadcast(pairs), WINDOW, "left").hint("rebalance", WINDOW)


def _writer(frame: DataFrame, request: Request) -> DataFrameWriter:
    writer = frame.write.format("delta").mode("overwrite").option("userMetadata", _metadata(request))
    if not request.windows:
        return writer.partitionBy(INPUTS).option("overwriteSchema", "true")
    chosen = ", ".join(f"'{window}'" for window in request.windows)
    writer = writer.partitionBy(WINDOW, INPUTS).option("mergeSchema", "true")
    return writer.option("replaceWhere", f"{WINDOW} IN ({chosen})")


def _metadata(request: Request) -> str:
    """What Delta's history shows beside the commit; for people, never read back."""
    return json.dumps(
        {
            "job": request.job,
            "code_version": request.code_version,
            "inputs": {name: source.version for name, source in request.inputs.items()},
            "windows": request.windows,
        },
        sort_keys=True,
    )
