from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from consumers.clock import ManualClock, SystemClock
from consumers.config import Consumer
from consumers.types import OffsetRange
from orchestration import mirror
from orchestration.components.consumer_assets import partitions
from orchestration.mirror_events import DATA_VERSION, Event, dead_letters_key, staged_key
from tests.orchestration.staged_tables import TP, Tables, consumer_in, version_of


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    return consumer_in(tmp_path)


@pytest.fixture
def tables(consumer: Consumer) -> Tables:
    tables = Tables(consumer)
    tables.acquire(0)
    return tables


def windows(instance: dg.DagsterInstance) -> dict[str, list[str]]:
    """Partition → data versions of its materializations, newest first."""
    found: dict[str, list[str]] = {}
    for record in instance.fetch_materializations(staged_key("orders"), limit=100).records:
        event = record.asset_materialization
        assert event is not None and event.tags is not None
        found.setdefault(str(event.partition), []).append(event.tags[DATA_VERSION])
    return found


def start_run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> str:
    @dg.job
    def nothing() -> None: ...

    run = instance.create_run_for_job(nothing, status=status)
    return run.run_id


def test_a_commit_becomes_one_materialization_of_each_window_it_touched(
    instance: dg.DagsterInstance, consumer: Consumer, tables: Tables
) -> None:
    commit = tables.batch(0, 4, {"2024-01-01": [0, 1], "2024-01-02": [2]}, dead=[3])
    mirror.log(consumer, commit, instance.report_runless_asset_event)
    assert set(windows(instance)) == {"2024-01-01", "2024-01-02"}
    [dead] = instance.fetch_materializations(dead_letters_key("orders"), limit=9).records
    assert dead.asset_materialization is not None
    assert dead.asset_materialization.metadata["dead_letters"].value == 1


def test_logging_a_commit_again_gives_the_same_data_versions(consumer: Consumer, tables: Tables) -> None:
    commit = tables.batch(0, 2, {"2024-01-01": [0], "2024-01-02": [1]})
    first: list[Event] = []
    second: list[Event] = []
    mirror.log(consumer, commit, first.append)
    mirror.log(consumer, commit, second.append)
    assert [e.tags for e in first] == [e.tags for e in second]
    later: list[Event] = []
    mirror.log(consumer, tables.batch(2, 3, {"2024-01-01": [2]}), later.append)
    assert later[0].tags != first[0].tags


def test_events_lost_with_their_process_are_written_again_with_the_same_data_version(
    instance: dg.DagsterInstance, consumer: Consumer, tables: Tables
) -> None:
    commit = tables.batch(0, 3, {"2024-01-01": [0], "2024-01-02": [1]}, dead=[2])
    would_be: list[Event] = []
    mirror.log(consumer, commit, would_be.append)
    survived = next(e for e in would_be if e.partition == "2024-01-01")
    instance.report_runless_asset_event(survived)

    assert [lack.parts for lack in mirror.missing(instance, consumer)] == [{"2024-01-02", mirror.DEAD_LETTERS}]
    assert mirror.repair(instance, consumer).events == 2
    assert mirror.missing(instance, consumer) == []
    assert windows(instance) == {
        str(e.partition): [(e.tags or {})[DATA_VERSION]] for e in would_be if e.asset_key == staged_key("orders")
    }


def test_a_repaired_window_does_not_go_back_behind_a_newer_commit(
    instance: dg.DagsterInstance, consumer: Consumer, tables: Tables
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    newer = tables.batch(1, 2, {"2024-01-01": [1]})
    mirror.log(consumer, newer, instance.report_runless_asset_event)
    [newest] = windows(instance)["2024-01-01"]
    assert mirror.repair(instance, consumer).commits == 1
    assert windows(instance)["2024-01-01"] == [newest, newest]


def test_a_young_commit_of_a_live_run_is_left_to_it(instance: dg.DagsterInstance, consumer: Consumer, tables: Tables) -> None:
    tables.member = start_run(instance, dg.DagsterRunStatus.STARTED)
    commit = tables.batch(0, 1, {"2024-01-01": [0]})
    assert mirror.missing(instance, consumer) == []
    assert mirror.repair(instance, consumer).verified == commit.version - 1

    later = ManualClock(SystemClock().time() + mirror.GRACE_SECONDS + 1)
    assert [lack.commit.version for lack in mirror.missing(instance, consumer, clock=later)] == [commit.version]


def test_a_young_commit_of_a_dead_run_is_repaired_at_once(
    instance: dg.DagsterInstance, consumer: Consumer, tables: Tables
) -> None:
    tables.member = start_run(instance, dg.DagsterRunStatus.FAILURE)
    tables.batch(0, 1, {"2024-01-01": [0]})
    assert mirror.repair(instance, consumer).events == 1


def test_a_repair_that_found_nothing_is_remembered_until_something_is_missing(
    instance: dg.DagsterInstance, consumer: Consumer, tables: Tables
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    mirror.repair(instance, consumer)
    assert mirror.repair(instance, consumer) == mirror.Repaired(version_of(consumer), 0, 0)

    instance.wipe_assets([staged_key("orders")])
    assert mirror.repair(instance, consumer).events == 0
    mirror.distrust(instance, consumer, 1)
    assert mirror.repair(instance, consumer).events == 1


@pytest.mark.parametrize("window", ["2023-12-31", "2999-01-01"])
def test_a_window_without_a_partition_is_mirrored_by_name(
    window: str, instance: dg.DagsterInstance, consumer: Consumer, tables: Tables
) -> None:
    tables.batch(0, 1, {window: [0]})
    mirror.repair(instance, consumer)
    [record] = instance.fetch_materializations(staged_key("orders"), limit=9).records
    event = record.asset_materialization
    assert event is not None and event.partition is None and event.metadata["window"].value == window
    assert mirror.missing(instance, consumer) == []


def test_lost_offsets_are_observed(instance: dg.DagsterInstance, consumer: Consumer, tables: Tables) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    tables.acquire(10, lost=OffsetRange(1, 10))
    mirror.repair(instance, consumer)
    [record] = instance.fetch_observations(staged_key("orders"), limit=9).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["lost_offsets"].value == 9
    assert mirror.missing(instance, consumer) == []


def test_a_table_that_does_not_exist_has_nothing_to_mirror(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    assert mirror.repair(instance, consumer) == mirror.Repaired(-1, 0, 0)


def test_an_event_has_the_numbers_that_the_ui_plots(consumer: Consumer, tables: Tables) -> None:
    commit = tables.batch(0, 3, {"2024-01-01": [0, 1]})
    events: list[Event] = []
    mirror.log(consumer, commit, events.append)
    plotted = (dg.IntMetadataValue, dg.FloatMetadataValue)
    numbers = {name: value.value for name, value in events[0].metadata.items() if isinstance(value, plotted)}
    assert numbers["rows"] == 2 and numbers["lag"] == 5 and numbers["skipped_offsets"] == 1
    others = {"bytes", "files", "rows_per_second", "commit_milliseconds", "flush_milliseconds", "dead_letters", "delta_version"}
    assert others <= set(numbers)
    assert str(TP) in str(events[0].metadata["ranges"])


def test_a_window_without_a_partition_asks_nothing_of_what_is_downstream(
    instance: dg.DagsterInstance, consumer: Consumer, tables: Tables
) -> None:
    staged = dg.AssetSpec(staged_key("orders"), partitions_def=partitions(consumer))

    @dg.asset(
        deps=[staged],
        partitions_def=partitions(consumer),
        automation_condition=dg.AutomationCondition.any_deps_updated(),
    )
    def downstream() -> None: ...

    definitions = dg.Definitions(assets=[staged, downstream])
    evaluated = dg.evaluate_automation_conditions(definitions, instance)
    tables.batch(0, 1, {"2023-12-31": [0]})
    mirror.repair(instance, consumer)
    evaluated = dg.evaluate_automation_conditions(definitions, instance, cursor=evaluated.cursor)
    assert evaluated.total_requested == 0
    tables.batch(1, 2, {"2024-01-02": [1]})
    mirror.repair(instance, consumer)
    assert dg.evaluate_automation_conditions(definitions, instance, cursor=evaluated.cursor).total_requested == 1
