"""The event log that stores batches answers as Dagster's own does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.event_log import SETTINGS, BatchingEventLog, instance_of, log_together
from orchestration.local.errors import LocalError

KEY, WINDOWS = dg.AssetKey("daily"), [f"2013-01-{day:02d}" for day in range(1, 31)]
PARTITIONS = dg.StaticPartitionsDefinition(WINDOWS)


@dg.multi_asset(
    specs=[dg.AssetSpec(KEY, skippable=True)],
    check_specs=[dg.AssetCheckSpec("whole", asset=KEY)],
    partitions_def=PARTITIONS,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def daily(context: dg.AssetExecutionContext) -> Iterator[dg.AssetCheckResult]:
    made = [
        dg.AssetMaterialization(KEY, partition=key, metadata={"rows": number}, tags={"dagster/data_version": f"v{number}"})
        for number, key in enumerate(context.partition_keys)
    ]
    log_together(context, made)
    yield dg.AssetCheckResult(passed=True, check_name="whole", asset_key=KEY)


@contextmanager
def home(folder: Path, batching: bool) -> Iterator[dg.DagsterInstance]:
    folder.mkdir(exist_ok=True)
    (folder / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{SETTINGS if batching else ''}")
    with instance_of(folder) as instance:
        assert isinstance(instance.event_log_storage, BatchingEventLog) == batching
        yield instance


def run(instance: dg.DagsterInstance, first: str, last: str) -> str:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    job = dg.Definitions([daily]).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, tags=tags).run_id


def answers(instance: dg.DagsterInstance) -> dict[str, Any]:
    """What the UI and sensors ask, without ids and times."""
    storage, (record,) = instance.event_log_storage, instance.get_asset_records([KEY])
    last = record.asset_entry.last_materialization
    made = instance.fetch_materializations(KEY, limit=1000).records
    tagged = instance.fetch_materializations(dg.AssetRecordsFilter(KEY, asset_partitions=["2013-01-07"]), limit=9).records
    planned = storage.get_event_records(dg.EventRecordsFilter(dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, KEY))
    (check,) = storage.get_latest_asset_check_execution_by_key([dg.AssetCheckKey(KEY, "whole")]).values()
    return {
        "materialized": instance.get_materialized_partitions(KEY),
        "made": [(each.partition_key, each.asset_materialization.tags) for each in made if each.asset_materialization],
        "tags": storage.get_latest_tags_by_partition(KEY, dg.DagsterEventType.ASSET_MATERIALIZATION, ["dagster/data_version"]),
        "one": [each.asset_materialization for each in tagged],
        "planned": sorted(str(each.partition_key) for each in planned),
        "newest": last and last.asset_materialization,
        "check": check.status,
        "kinds": sorted(
            str(each.event_log_entry.dagster_event_type)
            for found in instance.get_run_records()
            for each in instance.get_records_for_run(found.dagster_run.run_id).records
        ),
    }


@pytest.mark.parametrize("size", ["0", "7", "500"])
def test_what_is_asked_of_dagster_is_answered_as_by_its_own_event_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    found = []
    for batching in (False, True):
        monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", size if batching else "0")
        with home(tmp_path / f"{batching}", batching) as instance:
            run(instance, WINDOWS[0], WINDOWS[19])
            run(instance, WINDOWS[4], WINDOWS[9])
            found.append(answers(instance))
    assert found[0] == found[1]
    assert len(found[1]["materialized"]) == 20 and len(found[1]["made"]) == 26 and len(found[1]["planned"]) == 26


def test_a_home_of_dagsters_own_event_log_is_taken_over_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "7")
    for batching, first, last in [(False, 0, 4), (True, 5, 9), (False, 10, 14)]:
        with home(tmp_path / "home", batching) as instance:
            run(instance, WINDOWS[first], WINDOWS[last])
            assert instance.get_materialized_partitions(KEY) == set(WINDOWS[: last + 1])


def test_without_a_home_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(LocalError, match="DAGSTER_HOME"):
        BatchingEventLog.from_config_value(None, {})
