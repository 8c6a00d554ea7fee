"""Computes what a `Request` asks for: pinned inputs in, a Delta table of its own out, and what the audits found in it.

Needs nothing but PySpark and a session with Delta: in this process, on a cluster, or behind Spark Connect. It decides nothing,
and no reader sees what it writes: who asked publishes it, in one commit of the output table.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import functions, inputs, merging
from spark_jobs.audits import audit
from spark_jobs.merging import BUCKET
from spark_jobs.request import AuditResult, Request, Result
from spark_jobs.staged import INCOMPARABLE, OFFSET, PARTITION, WINDOW

INPUTS = "_inputs"
"""The partition column of output tables that holds the fingerprint of a row's inputs and code."""

_NULL = "Declared columns of a tombstone are null: its key is in _key alone."
_NAMED = 5


def run(spark: SparkSession, request: Request) -> Result:
    """Compute, write the attempt, audit it.

    Raises what the function raises, and ValueError for a function or a result that does not fit the request. An attempt that was
    written by then stays where no reader looks.
    """
    function = functions.load_function(request.function)
    functions.check_signature(function, request.inputs, request.parameters, request.mode)
    frames = {name: inputs.read(spark, source) for name, source in request.inputs.items()}
    current = _current(spark, request)
    seen = None if current is None else current.drop(BUCKET)
    result = functions.call(function, frames, request.parameters, request.windows, seen)
    _check_columns(result, request)
    _check_order(result, frames, request)
    buckets = _write_merged(result, current, request) if request.mode == "merge" else _write_shaped(spark, result, request)
    replaced = None if current is None else current.where(F.col(BUCKET).isin(list(buckets)))
    return Result(_audited(spark, request, frames, replaced), buckets, *_application(spark))


def _audited(
    spark: SparkSession, request: Request, frames: Mapping[str, DataFrame], replaced: DataFrame | None
) -> tuple[AuditResult, ...]:
    """What was written is opened only when there is something to ask it."""
    if request.mode != "merge" and not request.audits:
        return ()
    written = spark.read.format("delta").load(request.attempt)
    if request.mode == "merge":
        _check_keys(written, request)
    return audit(written, request.audits, frames, replaced)


def _current(spark: SparkSession, request: Request) -> DataFrame | None:
    if request.mode != "merge" or request.output_version < 0:
        return None
    return inputs.at_version(spark, request.output, request.output_version)


def _check_columns(result: DataFrame, request: Request) -> None:
    def refuse(problem: str) -> None:
        names = ", ".join(result.columns)
        raise ValueError(f"{request.job}: the function returned {problem}; it returned {names}. Nothing was written.")

    if request.mode == "window" and WINDOW not in result.columns:
        refuse(f"no column {WINDOW}, but the job is computed by window")
    if reserved := sorted({INPUTS, BUCKET} & set(result.columns)):
        refuse(f"{', '.join(reserved)}, reserved for what Weir adds")
    if request.mode == "merge" and (missing := sorted(set(request.keys) - set(result.columns))):
        refuse(f"no column {', '.join(missing)}, a key of the merge")


def _check_order(result: DataFrame, frames: Mapping[str, DataFrame], request: Request) -> None:
    """Refuse offsets to merge by that are not told from those of other partitions, where the inputs would tell."""
    if request.mode != "merge" or OFFSET not in result.columns:
        return
    known = {name for frame in frames.values() for name in frame.columns}
    if missing := [name for name in PARTITION if name in known and name not in result.columns]:
        raise ValueError(
            f"{request.job}: the function returned {OFFSET} without {', '.join(missing)}, so that rows of several partitions "
            "cannot be told apart, whose offsets say nothing about each other. Nothing was written. Return these columns, too, "
            f"or no {OFFSET} and one row per key."
        )


def _write_shaped(spark: SparkSession, result: DataFrame, request: Request) -> tuple[str, ...]:
    if request.mode == "window":
        # A window's rows meet in one task, so that it gets one file; large windows are split by adaptive execution.
        _write(_stamp(spark, result, request).hint("rebalance", WINDOW), request, [WINDOW, INPUTS])
    elif request.mode == "full":
        _write(result.withColumn(INPUTS, F.lit(request.fingerprints[""])).hint("rebalance"), request, [INPUTS])
    elif WINDOW in result.columns:
        _write(result.hint("rebalance", WINDOW), request, [WINDOW])
    else:
        _write(result.hint("rebalance"), request, [])
    return ()


def _stamp(spark: SparkSession, result: DataFrame, request: Request) -> DataFrame:
    """Add the fingerprint of the row's window. Rows of a window that was not asked for get none."""
    pairs = spark.createDataFrame(sorted(request.fingerprints.items()), f"{WINDOW} string, {INPUTS} string")
    return result.join(F.broadcast(pairs), WINDOW, "left")


def _write_merged(result: DataFrame, current: DataFrame | None, request: Request) -> tuple[str, ...]:
    new = merging.with_bucket(result, request.keys, request.buckets)
    if current is None:
        _write(merging.merged(new, None, request.keys), request, [BUCKET])
        return tuple(sorted(map(str, range(request.buckets))))
    new = new.persist()  # it is asked for its buckets, and then written
    try:
        buckets = merging.touched(new)
        _write(merging.merged(new, current.where(F.col(BUCKET).isin(list(buckets))), request.keys), request, [BUCKET])
    finally:
        new.unpersist()
    return buckets


def _write(frame: DataFrame, request: Request, partition: Sequence[str]) -> None:
    frame.write.format("delta").mode("error").partitionBy(*partition).save(request.attempt)


def _check_keys(written: DataFrame, request: Request) -> None:
    """Refuse rows whose bucket is null. It is a partition, so a clean attempt's log says that there are none."""
    keys = ", ".join(request.keys)
    if OFFSET in written.columns:
        problem = f"rows without a key, or that share their {keys} and have one offset, or offsets of several partitions"
        advice = f"{INCOMPARABLE} {_NULL}"
    else:
        problem, advice = f"rows without a key, or that share their {keys}, and no _offset to choose by", _NULL
    found = written.where(F.col(BUCKET).isNull()).select(*request.keys).distinct().limit(_NAMED + 1).collect()
    if found:
        named = ", ".join(sorted(" ".join(map(str, row)) for row in found)[:_NAMED])
        raise ValueError(
            f"{request.job}: the function returned {problem}: {named}{', …' if found[_NAMED:] else ''}. "
            f"Nothing was published, readers see the table as it was. {advice}".rstrip()
        )


def _application(spark: SparkSession) -> tuple[str, str]:
    """The application's id and its pages' address; a session of Spark Connect has no `sparkContext` to ask."""
    context = getattr(spark, "sparkContext", None)
    return ("", "") if context is None else (context.applicationId, context.uiWebUrl or "")
