"""Starts a run when the table has another version than the one that Dagster last saw sent, and once a day.

Once a day, since Kafka forgets the offsets of a group for which nobody commits (`offsets.retention.minutes`, seven days). Whether
there is something to send, the run finds out by itself.
"""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from deltalake import DeltaTable

from consumers.clock import Clock
from orchestration.feed.config import Feed
from orchestration.feed.sender import Told

WORK_TAG = "weir/publish"
_FAILED = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_FIRST_RETRY_SECONDS = 30.0
_LAST_RETRY_SECONDS = 600.0
_REFRESH_SECONDS = 86_400.0


def evaluate(instance: dg.DagsterInstance, path: Path, feed: Feed, key: dg.AssetKey, job: str, clock: Clock) -> dg.SensorResult:
    """At most one run request, or a skip reason with versions in it."""
    if not DeltaTable.is_deltatable(str(path)):
        return dg.SensorResult(skip_reason=f"{path.name} has no table yet")
    table = DeltaTable(str(path))
    version, group = table.version(), feed.group(path.name, str(table.metadata().id))
    told, at = last_sent(instance, key)
    age = clock.time() - at
    same = told is not None and (told.version, told.group) == (version, group)
    if same and age < _REFRESH_SECONDS:
        return dg.SensorResult(skip_reason=f"version {version} of {path.name} was sent to {feed.topic} {age:.0f} s ago")
    if running := instance.get_runs(RunsFilter(job_name=job, statuses=NOT_FINISHED_STATUSES), limit=1):
        return dg.SensorResult(skip_reason=f"{path.name} is at version {version}; run {running[0].run_id} is not finished")
    work = f"{group}@{version}"
    tried = RunsFilter(job_name=job, tags={WORK_TAG: work})
    if waiting := _waiting(instance.get_run_records(tried, limit=20), clock.time()):
        return dg.SensorResult(skip_reason=f"version {version} of {path.name} is not sent; {waiting}")
    # A run key is for ever, also after a failure.
    request = dg.RunRequest(run_key=f"{work}/{instance.get_runs_count(tried)}", tags={WORK_TAG: work})
    return dg.SensorResult(run_requests=[request])


def last_sent(instance: dg.DagsterInstance, key: dg.AssetKey) -> tuple[Told | None, float]:
    """What was sent last, as Dagster knows, and when (seconds since the epoch)."""
    event = instance.get_latest_materialization_event(key)
    materialization = event.asset_materialization if event else None
    if event is None or materialization is None:
        return None, 0.0
    version, group, topic_id = (materialization.metadata.get(name) for name in ("version", "group", "topic_id"))
    if version is None or group is None or topic_id is None:
        return None, 0.0
    return Told(int(str(version.value)), str(group.value), str(topic_id.value)), event.timestamp


def _waiting(records: Sequence[dg.RunRecord], now: float) -> str:
    """Why there should be no further run for the same work now (empty: go)."""
    failed = [record for record in records if record.dagster_run.status in _FAILED]
    if not failed:
        return ""
    pause = min(_FIRST_RETRY_SECONDS * 2 ** (len(failed) - 1), _LAST_RETRY_SECONDS)
    left = pause - (now - (failed[0].end_time or now))
    return f"run {failed[0].dagster_run.run_id} failed, trying again in {left:.0f} s" if left > 0 else ""
