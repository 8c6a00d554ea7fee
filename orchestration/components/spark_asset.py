"""The asset of a Spark job: what one run does, for one window, a range of a backfill or a set handed over by
the sensor.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg
import pyarrow as pa
from dagster import AssetCheckResult
from pydantic import Field

from consumers.clock import Clock
from orchestration.components.spark_plan import Job, Plan, load_function
from orchestration.components.spark_state import WHOLE, Output, Pinned, read_output, record_empty
from orchestration.resources.spark import SparkResource
from spark_jobs import runner

CheckFunction = Callable[[Path, Mapping[str, Pinned]], AssetCheckResult]
"""A check: (the output table, the inputs at the versions that the run read) → its result, without a name."""

_DATA_VERSION = "dagster/data_version"


class Windows(dg.Config):
    """Which windows of the run's range to compute."""

    windows: list[str] = Field(default_factory=list, description="Of the range, only these; empty: all of it.")


def materialize(
    context: dg.AssetExecutionContext, job: Job, config: Windows, spark: SparkResource, clock: Clock
) -> Generator[dg.MaterializeResult[None], None, Plan]:
    """Compute the requested windows that are stale and report every requested one; return what was planned.

    Windows are reported by events of our own: an ordinary return would mark the whole range with one set of
    metadata, and windows between those of a scattered set that nobody computed. Raises dg.Failure when an
    input has no table yet.
    """
    if missing := job.missing():
        raise dg.Failure(
            f"{job.name}: no staged table yet for {', '.join(missing)}; nothing was written. Start ingestion "
            "of these consumers, then run this again.",
            allow_retries=False,
        )
    started = clock.monotonic()
    plan = job.plan(_requested(context, job, config))
    unchanged = len(plan.fingerprints) - len(plan.stale)
    context.log.info(f"unchanged: {unchanged} windows; to compute: {len(plan.stale)} windows; inputs {plan.versions}")
    output = _compute(job, plan, spark) if plan.stale else plan.output
    seconds = round(clock.monotonic() - started, 3)
    context.log.info(f"{job.name} is at Delta version {output.version} after {seconds} s")
    metadata = {window: _metadata(job, plan, output, window, seconds) for window in plan.fingerprints}
    if metadata:
        metadata[next(reversed(metadata))] |= _columns(output)
    if not job.windowed:
        yield dg.MaterializeResult(metadata=metadata[WHOLE], data_version=dg.DataVersion(plan.fingerprints[WHOLE]))
    for window, print_ in plan.fingerprints.items() if job.windowed else ():
        context.log_event(
            dg.AssetMaterialization(context.asset_key, partition=window, metadata=metadata[window], tags={_DATA_VERSION: print_})
        )
    return plan


def evaluate_checks(job: Job, plan: Plan, key: dg.AssetKey, checks: Mapping[str, str]) -> Iterator[AssetCheckResult]:
    """Call each check's function; as part of the run, since a run of windows has no output that a check could
    wait for.
    """
    for name, dotted in checks.items():
        result = load_check(dotted)(job.output, plan.inputs)
        yield AssetCheckResult(
            passed=result.passed,
            asset_key=key,
            check_name=name,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
        )


def load_check(dotted: str) -> CheckFunction:
    """Import a check's function; raises ValueError that says what is missing."""
    return load_function(dotted)  # type: ignore[return-value]  # any callable; its shape is the caller's promise


def _requested(context: dg.AssetExecutionContext, job: Job, config: Windows) -> Sequence[str] | None:
    if not job.windowed:
        return None
    in_range = list(context.partition_keys)
    if outside := sorted(set(config.windows) - set(in_range)):
        raise dg.Failure(
            f"{job.name}: windows outside of the run's range {in_range[0]} to {in_range[-1]}: "
            f"{', '.join(outside[:5])}; nothing was written. Widen the range or leave them out.",
            allow_retries=False,
        )
    return sorted(set(config.windows)) or in_range


def _compute(job: Job, plan: Plan, spark: SparkResource) -> Output:
    request = job.request(plan)
    runner.run(spark.spark_session, load_function(job.function), request)
    output = read_output(job.output, job.windowed)
    empty = {window: plan.fingerprints[window] for window in plan.stale if window not in output.fingerprints}
    record_empty(output, job.name, empty)
    return output


def _columns(output: Output) -> dict[str, dg.MetadataValue]:
    """The table's columns, which Dagster shows from the newest event."""
    if output.table is None:
        return {}
    fields = pa.schema(output.table.schema().to_arrow())
    columns = [dg.TableColumn(field.name, str(field.type)) for field in fields if field.name != runner.INPUTS]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns=columns))}


def _metadata(job: Job, plan: Plan, output: Output, window: str, seconds: float) -> dict[str, dg.MetadataValue]:
    return {
        "rows": dg.MetadataValue.int(output.rows.get(window, 0)),
        "dagster/partition_row_count" if job.windowed else "dagster/row_count": dg.MetadataValue.int(output.rows.get(window, 0)),
        "unchanged": dg.MetadataValue.bool(window not in plan.stale),
        "seconds": dg.MetadataValue.float(seconds),
        "windows_in_run": dg.MetadataValue.int(len(plan.stale)),
        "output_version": dg.MetadataValue.int(output.version),
        "code_version": dg.MetadataValue.text(job.code_version()),
        **{f"input_version/{name}": dg.MetadataValue.int(pinned.version) for name, pinned in plan.inputs.items()},
    }
