"""The asset of a Spark job: what one run does, for one window, a range of a backfill or a set handed over by the sensor."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import dagster as dg
from dagster import AssetCheckResult
from pydantic import Field

from consumers.clock import Clock
from consumers.staging.delta import Conflict
from orchestration.components.spark_metadata import metadata, not_evaluated, result_of, with_columns
from orchestration.compute.job import WHOLE, Job
from orchestration.compute.output import NO_TABLE, Output, read_output
from orchestration.compute.pins import Pinned
from orchestration.compute.plan import Plan, plan, request
from orchestration.compute.publish import discard, publish
from orchestration.compute.record import Publication
from orchestration.event_log import log_together
from orchestration.resources.spark import SparkRuntime
from spark_jobs.functions import load_function
from spark_jobs.request import AuditResult, Result

CheckFunction = Callable[[Path, Mapping[str, Pinned]], AssetCheckResult]
"""A check: (the output table, the inputs at the versions that the run read) → its result, without a name."""
Events = Generator[dg.MaterializeResult[None] | AssetCheckResult, None, None]

_DATA_VERSION = "dagster/data_version"
_ROUNDS = 5


class Windows(dg.Config):
    """Which windows of the run's range to compute."""

    windows: list[str] = Field(default_factory=list, description="Of the range, only these; empty: all of it.")


@dataclass(frozen=True)
class Work:
    """What an asset's runs do: the job, its checks by name (dotted paths), and Spark's settings for it."""

    job: Job
    key: dg.AssetKey
    checks: Mapping[str, str]
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Done:
    """What a run did: its plan, the publication (None where nothing was), and the audits that refused one."""

    plan: Plan
    publication: Publication | None = None
    refused: Result | None = None


def materialize(context: dg.AssetExecutionContext, work: Work, config: Windows, spark: SparkRuntime, clock: Clock) -> Events:
    """Compute the requested windows that are stale, publish, and report every requested one, then all checks.

    Windows are reported by events of our own: an ordinary return would mark the whole range with one set of metadata, and windows
    between those of a scattered set that nobody computed. Raises dg.Failure when an input has no table yet, and when an audit
    that blocks has failed, after its result was reported.
    """
    job = work.job
    if missing := job.missing():
        raise dg.Failure(
            f"{job.name}: no staged table yet for {', '.join(missing)}; nothing was written. Start ingestion "
            "of these consumers, then run this again.",
            allow_retries=False,
        )
    started = clock.monotonic()
    done = _compute(context, work, _requested(context, job, config), spark)
    if done.refused is not None:
        yield from _audits(work, done.refused.audits, done.plan.output)
        for name in work.checks:
            yield not_evaluated(work.key, name, "the result was not published")
        raise dg.Failure(_refusal(done.plan, done.refused), allow_retries=False)
    output = read_output(job) if done.publication else done.plan.output
    seconds = round(clock.monotonic() - started, 3)
    context.log.info(f"{job.name} is at Delta version {output.version} after {seconds} s")
    yield from _report(context, done, output, seconds)
    yield from _audits(work, output.last.audits if output.last else (), output)
    yield from _checks(work, done.plan)


def load_check(dotted: str) -> CheckFunction:
    """Import a check's function; raises ValueError that says what is missing."""
    return cast(CheckFunction, load_function(dotted))


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


def _compute(context: dg.AssetExecutionContext, work: Work, windows: Sequence[str] | None, spark: SparkRuntime) -> Done:
    """Plan, compute and publish; from the start when somebody else published in between."""
    for _ in range(_ROUNDS):
        todo = plan(work.job, windows)
        context.log.info(f"{todo.reason}; inputs {todo.versions}")
        if not todo.stale:
            return Done(todo)
        asked = request(todo)
        try:
            result = spark.compute(context, asked, work.settings)
        except Exception:
            discard(Path(asked.attempt))
            raise
        if result.refused:
            discard(Path(asked.attempt))
            return Done(todo, refused=result)
        try:
            return Done(todo, publish(todo, asked, result))
        except Conflict as error:
            context.log.warning(f"planning again: {error}")
    raise dg.Failure(
        f"{work.job.name}: others changed its table or published to it {_ROUNDS} times while it was computed. Nothing of this "
        f"run was published; readers see what the others did. Let only one of them write {work.job.output}, then run this again."
    )


def _report(context: dg.AssetExecutionContext, done: Done, output: Output, seconds: float) -> Events:
    todo = done.plan
    about = {window: metadata(todo, output, done.publication, window, seconds) for window in todo.fingerprints}
    if about:
        with_columns(about[next(reversed(about))], output)
    if not todo.job.windowed:
        print_ = todo.fingerprints[WHOLE] if todo.job.mode == "full" else f"{output.published}"
        yield dg.MaterializeResult(metadata=about[WHOLE], data_version=dg.DataVersion(print_))
        return
    made = [
        dg.AssetMaterialization(context.asset_key, partition=window, metadata=about[window], tags={_DATA_VERSION: print_})
        for window, print_ in todo.fingerprints.items()
    ]
    log_together(context, made)


def _audits(work: Work, found: Sequence[AuditResult], output: Output) -> Iterator[AssetCheckResult]:
    """The result of every audit; those of the newest publication where nothing was computed."""
    results = {result.name: result for result in found}
    for audit in work.job.audits:
        if audit.name in results:
            yield result_of(results[audit.name], work.key)
        else:
            yield not_evaluated(work.key, audit.name, f"it is newer than version {output.version}")


def _checks(work: Work, todo: Plan) -> Iterator[AssetCheckResult]:
    """As part of the run, since a run of windows has no output that a check could wait for."""
    for name, dotted in work.checks.items():
        result = load_check(dotted)(work.job.output, todo.inputs)
        yield AssetCheckResult(
            passed=result.passed,
            asset_key=work.key,
            check_name=name,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
        )


def _refusal(todo: Plan, result: Result) -> str:
    version = todo.output.version
    readers = "there is still no table" if version == NO_TABLE else f"readers still see version {version} of {todo.job.output}"
    broken = "; ".join(f"{audit.name}: {audit.said}" for audit in result.refused)
    return (
        f"{todo.job.name}: {len(result.refused)} of {len(result.audits)} audits failed, so nothing was published and {readers}. "
        f"{broken}. Mend the input or the function, or change the audits in its defs.yaml, and run this again; new commits start "
        "a run, too."
    )
