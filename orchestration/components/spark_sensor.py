"""Starts a job's runs when commits arrive: one run for all stale windows, however scattered they are.

Every tick compares the Delta logs of inputs and output; nothing is remembered but since when there is work. A
run gets the range that covers its windows, as Dagster wants it, and the windows themselves in its config.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from consumers.clock import Clock
from consumers.staging.completeness import end_of
from consumers.staging.windows import Every
from orchestration.completeness import at, valid_through
from orchestration.compute.job import Job
from orchestration.compute.plan import Plan, plan

JOB_TAG = "weir/spark_job"
WORK_TAG = "weir/work"
_RANGE_START, _RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
_FAILED = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_FIRST_RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class Trigger:
    """When a job is to run: after `settle_seconds` without a commit, or when work has waited
    `max_wait_seconds`.

    A run takes at most `max_windows` windows. Work on which `max_attempts` runs failed waits for new commits
    or code. Windows that are not complete in all of `complete_in` (consumers) are left alone until they are.
    """

    settle_seconds: float = 10.0
    max_wait_seconds: float = 60.0
    max_windows: int = 10_000
    max_attempts: int = 3
    complete_in: tuple[str, ...] = ()
    every: Every = "day"


def evaluate(
    context: dg.SensorEvaluationContext,
    job: Job,
    key: dg.AssetKey,
    partitions: dg.PartitionsDefinition | None,
    trigger: Trigger,
    clock: Clock,
) -> dg.SensorResult:
    """At most one run request, or a skip reason that holds numbers; and the new cursor."""
    if missing := job.missing():
        return _skip(f"no staged table yet for {', '.join(missing)}", None)
    todo = plan(job)
    stale = [w for w in todo.stale if partitions is None or partitions.has_partition_key(w)]
    state = _state(todo, stale)
    if stale and trigger.complete_in:
        stale, waiting = _complete(context.instance, stale, trigger)
        state += waiting
    if not stale:
        return _skip(state, None)
    now = clock.time()
    since = json.loads(context.cursor or "{}").get("since", now)
    if running := _running(context.instance, job, key):
        return _skip(f"{state}; run {running} is not finished", since)
    if waiting := _unsettled(todo, now, since, trigger):
        return _skip(f"{state}; {waiting}", since)
    chosen = stale[: trigger.max_windows]
    work = todo.work(chosen)
    attempts, refusal = _attempts(context.instance, work, now, trigger)
    if refusal:
        return _skip(f"{state}; {refusal}", since)
    # A run key is for ever, also after a failure: it holds what the work is, and how often it was tried.
    request = dg.RunRequest(
        run_key=f"{job.name}/{work}/{attempts}",
        run_config=_config(job, chosen, partitions),
        tags={WORK_TAG: work, **_range(chosen, partitions)},
    )
    return dg.SensorResult(run_requests=[request], cursor=_cursor(now))


def _state(todo: Plan, stale: Sequence[str]) -> str:
    if not todo.job.windowed:
        return f"{todo.reason}; inputs {todo.versions}"
    outside = len(todo.stale) - len(stale)
    ignored = f" ({outside} stale windows lie outside of the asset's partitions, from `first` to `last`)" if outside else ""
    return f"{len(stale)} of {len(todo.fingerprints)} windows stale at {todo.versions}{ignored}"


def _complete(instance: dg.DagsterInstance, stale: Sequence[str], trigger: Trigger) -> tuple[list[str], str]:
    """The windows that are complete in every consumer, and in words which others wait for whom."""
    through = {name: valid_through(instance, name) for name in trigger.complete_in}
    least = min((-1.0 if seconds is None else seconds for seconds in through.values()), default=-1.0)
    complete = [window for window in stale if (end_of(window, trigger.every) or math.inf) <= least * 1000]
    if len(complete) == len(stale):
        return complete, ""
    told = ", ".join(f"{name} is valid through {at(seconds)}" for name, seconds in through.items())
    unknown = [f"keep_{name}" for name, seconds in through.items() if seconds is None]
    hint = f"; switched on, the sensor {' and '.join(unknown)} finds out" if unknown else ""
    return complete, f"; {len(stale) - len(complete)} of them are not complete yet: {told}{hint}"


def _unsettled(todo: Plan, now: float, since: float, trigger: Trigger) -> str:
    quiet = now - max(pinned.committed for pinned in todo.inputs.values())
    if quiet >= trigger.settle_seconds or now - since >= trigger.max_wait_seconds:
        return ""
    return (
        f"last input commit {quiet:.0f} s ago, waiting for {trigger.settle_seconds:g} s of quiet, "
        f"{trigger.max_wait_seconds - (now - since):.0f} s more at most"
    )


def _running(instance: dg.DagsterInstance, job: Job, key: dg.AssetKey) -> str:
    """The id of an unfinished run over this asset, be it ours, a backfill's or somebody's; else an empty
    string.
    """
    for run in instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        if run.tags.get(JOB_TAG) == job.name or key in (run.asset_selection or ()):
            return run.run_id
    return ""


def _attempts(instance: dg.DagsterInstance, work: str, now: float, trigger: Trigger) -> tuple[int, str]:
    """How many runs had just this work, and why there should be no further one now (empty: go)."""
    records = instance.get_run_records(RunsFilter(tags={WORK_TAG: work}), limit=100)
    failed = [record for record in records if record.dagster_run.status in _FAILED]
    if records and records[0].dagster_run.status == DagsterRunStatus.SUCCESS:
        wait = _again_in(len(records) - len(failed), now, records[0].end_time)
        return len(records), "" if wait <= 0 else (
            f"run {records[0].dagster_run.run_id} of just this ended well, and it is due still: this code location may have "
            f"loaded older definitions than there are; reload it. Trying again in {wait:.0f} s"
        )
    if not failed:
        return len(records), ""
    last = failed[0].dagster_run.run_id
    if len(failed) >= trigger.max_attempts:
        return len(records), (
            f"{len(failed)} runs failed on just these windows, the last was {last}: nothing was written. "
            "Read its log, then change the job or launch a backfill; new commits start a run, too"
        )
    wait = _again_in(len(failed), now, failed[0].end_time)
    return len(records), f"run {last} failed, trying again in {wait:.0f} s" if wait > 0 else ""


def _again_in(runs: int, now: float, ended: float | None) -> float:
    """Seconds to wait after so many runs, the last of which has ended then: longer each time, at most 16 minutes."""
    return float(_FIRST_RETRY_SECONDS * 2 ** min(runs - 1, 5) - (now - (ended or now)))


def _config(job: Job, chosen: Sequence[str], partitions: dg.PartitionsDefinition | None) -> dict[str, object]:
    return {"ops": {job.name: {"config": {"windows": list(chosen)}}}} if partitions else {}


def _range(chosen: Sequence[str], partitions: dg.PartitionsDefinition | None) -> dict[str, str]:
    return {_RANGE_START: min(chosen), _RANGE_END: max(chosen)} if partitions else {}


def _skip(reason: str, since: float | None) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=reason, cursor="{}" if since is None else _cursor(since))


def _cursor(since: float) -> str:
    return json.dumps({"since": since})
