import fcntl
import shutil
from collections.abc import Sequence
from dataclasses import replace

import dagster as dg
import pytest
from dagster import DagsterInstance

from consumers.clock import ManualClock, SystemClock
from consumers.config import Consumer
from consumers.types import OffsetRange
from orchestration import mirror
from orchestration.components.consumer_assets import partitions
from orchestration.mirror_events import DATA_VERSION, data_version, dead_letters_key, staged_key
from orchestration.mirror_marks import LOST
from tests.orchestration.staged_tables import Tables, version_of


@pytest.fixture
def tables(consumer: Consumer) -> Tables:
    tables = Tables(consumer)
    tables.acquire(0)
    return tables


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().time())


def catch_up(instance: DagsterInstance, consumer: Consumer, clock: ManualClock, **options: object) -> mirror.Pass:
    return mirror.catch_up(instance, consumer, instance.report_runless_asset_event, clock, **options)  # type: ignore[arg-type]


def events(instance: DagsterInstance) -> list[dg.AssetMaterialization]:
    """The staged asset's materializations, oldest first."""
    records = instance.fetch_materializations(staged_key("orders"), limit=1000, ascending=True).records
    return [record.asset_materialization for record in records if record.asset_materialization]


def versions(found: Sequence[dg.AssetMaterialization]) -> list[tuple[str | None, str | None]]:
    return [(event.partition, (event.tags or {}).get(DATA_VERSION)) for event in found]


def report_by_hand(instance: DagsterInstance, window: str, version: str | None = None) -> None:
    tags = {DATA_VERSION: version} if version else {}
    instance.report_runless_asset_event(dg.AssetMaterialization(staged_key("orders"), partition=window, tags=tags))


def behind(instance: DagsterInstance, consumer: Consumer, clock: ManualClock) -> list[str]:
    return [each.part for each in mirror.compare(instance, consumer, clock)]


def test_any_number_of_commits_becomes_one_event_for_each_window_they_touched(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    first = tables.batch(0, 4, {"2024-01-01": [0, 1], "2024-01-02": [2]}, dead=[3])
    second = tables.batch(4, 6, {"2024-01-02": [4]})
    assert catch_up(instance, consumer, clock).events == 3
    assert versions(events(instance)) == [("2024-01-01", data_version(first)), ("2024-01-02", data_version(second))]
    assert behind(instance, consumer, clock) == []


def test_an_event_sums_what_its_commits_added_since_the_windows_last_event(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    catch_up(instance, consumer, clock)
    tables.batch(1, 4, {"2024-01-01": [1, 2]}, dead=[3])
    tables.batch(4, 6, {"2024-01-01": [4]})
    clock.advance(mirror.EVERY_SECONDS)
    catch_up(instance, consumer, clock)
    found = {name: value.value for name, value in events(instance)[-1].metadata.items()}
    assert (found["rows"], found["bytes"], found["files"], found["dead_letters"], found["commits"]) == (3, 200, 2, 1, 2)
    assert (found["skipped_offsets"], found["lag"]) == (1, 5)
    ranges = events(instance)[-1].metadata["ranges"]
    assert isinstance(ranges, dg.TableMetadataValue)
    assert ranges.records[0].data == {"partition": "orders/0", "start": 1, "end": 6, "offsets": 5, "high_watermark": 11}


def test_a_window_has_at_most_one_event_a_minute_whoever_looks_and_however_often(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    times = []
    for second in range(180):
        tables.batch(second, second + 1, {"2024-01-01": [second]})
        for _ in range(3):
            if catch_up(instance, consumer, clock).events:
                times.append(second)
        clock.advance(1)
    assert times == [0, 60, 120]
    assert [event.metadata["rows"].value for event in events(instance)] == [1, 60, 60]


def test_a_pass_that_has_to_wait_says_for_how_long_and_the_next_one_writes_everything(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    catch_up(instance, consumer, clock)
    tables.batch(1, 2, {"2024-01-02": [1]})
    clock.advance(20)
    waiting = catch_up(instance, consumer, clock)
    assert waiting.events == 0 and waiting.again_in == pytest.approx(mirror.EVERY_SECONDS - 20)
    clock.advance(waiting.again_in or 0)
    assert catch_up(instance, consumer, clock).events == 1


def test_only_one_process_makes_a_pass_at_a_time(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    with (consumer.staged / "_mirror.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert catch_up(instance, consumer, clock).events == 0
    assert catch_up(instance, consumer, clock).events == 1


def test_a_pass_that_was_cut_off_is_completed_at_once_without_repeating_an_event(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 3, {"2024-01-01": [0], "2024-01-02": [1], "2024-01-03": [2]})

    def cut_off(event: dg.AssetMaterialization | dg.AssetObservation) -> None:
        if events(instance):
            raise KeyboardInterrupt
        instance.report_runless_asset_event(event)

    with pytest.raises(KeyboardInterrupt):
        mirror.catch_up(instance, consumer, cut_off, clock)
    tables.batch(3, 4, {"2024-01-01": [3]})
    for _ in range(3):
        catch_up(instance, consumer, clock)
    each_once = [("2024-01-01", 1), ("2024-01-02", 1), ("2024-01-03", 1)]
    assert [(event.partition, event.metadata["rows"].value) for event in events(instance)] == each_once
    clock.advance(mirror.EVERY_SECONDS)
    catch_up(instance, consumer, clock)
    assert [event.partition for event in events(instance)] == ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-01"]


def test_a_pass_that_takes_too_long_is_finished_by_the_next_calls(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 3, {"2024-01-01": [0], "2024-01-02": [1], "2024-01-03": [2]})

    def slow(event: dg.AssetMaterialization | dg.AssetObservation) -> None:
        instance.report_runless_asset_event(event)
        clock.advance(1)

    first = mirror.catch_up(instance, consumer, slow, clock, seconds=2)
    assert first == mirror.Pass(-1, 1, 2, again_in=0.0)
    assert mirror.catch_up(instance, consumer, slow, clock, seconds=2) == mirror.Pass(version_of(consumer), 1, 1)


def test_events_that_were_wiped_are_found_by_a_full_comparison_and_written_again(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    newest = tables.batch(0, 1, {"2024-01-01": [0]}, dead=[])
    catch_up(instance, consumer, clock)
    instance.wipe_assets([staged_key("orders")])
    clock.advance(mirror.EVERY_SECONDS)
    assert catch_up(instance, consumer, clock).events == 0
    assert behind(instance, consumer, clock) == ["2024-01-01"]
    assert catch_up(instance, consumer, clock, full=True).events == 1
    assert versions(events(instance)) == [("2024-01-01", data_version(newest))]


@pytest.mark.parametrize("version", [None, "mine"])
def test_a_window_reported_by_hand_gets_the_tables_data_version_back(
    version: str | None, instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    newest = tables.batch(0, 2, {"2024-01-01": [0], "2024-01-02": [1]})
    catch_up(instance, consumer, clock)
    report_by_hand(instance, "2024-01-01", version)
    [wrong] = mirror.compare(instance, consumer, clock)
    assert (wrong.part, wrong.found) == ("2024-01-01", version or "")
    clock.advance(mirror.EVERY_SECONDS)
    catch_up(instance, consumer, clock, full=True)
    assert versions(events(instance))[-1] == ("2024-01-01", data_version(newest))


def test_what_is_distrusted_is_compared_by_the_next_pass(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    catch_up(instance, consumer, clock)
    report_by_hand(instance, "2024-01-01")
    mirror.distrust(instance, consumer)
    clock.advance(mirror.EVERY_SECONDS)
    assert catch_up(instance, consumer, clock).events == 1


def test_a_table_that_was_made_anew_is_mirrored_from_its_start(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    catch_up(instance, consumer, clock)
    consumer.staged.rename(consumer.staged.with_name("old"))
    again = replace(tables, member="member-2", _count=0)
    again.acquire(0)
    newest = again.batch(0, 1, {"2024-01-01": [0]})
    again.batch(1, 2, {"2024-01-02": [1]})
    clock.advance(mirror.EVERY_SECONDS)
    catch_up(instance, consumer, clock)
    assert ("2024-01-01", data_version(newest)) in versions(events(instance))
    assert behind(instance, consumer, clock) == []


def test_a_table_that_was_restored_from_a_copy_and_went_on_is_compared_from_its_start(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    copy = consumer.staged.with_name("copy")
    tables.batch(0, 1, {"2024-01-01": [0]})
    shutil.copytree(consumer.staged, copy)
    tables.batch(1, 2, {"2024-01-02": [1]})
    catch_up(instance, consumer, clock)
    shutil.rmtree(consumer.staged)
    shutil.copytree(copy, consumer.staged)
    for offset, window in ((1, "2024-01-03"), (2, "2024-01-04")):
        tables.batch(offset, offset + 1, {window: [offset]})
    clock.advance(mirror.EVERY_SECONDS)
    catch_up(instance, consumer, clock)
    assert behind(instance, consumer, clock) == []


def test_a_commit_of_a_moment_ago_is_not_missed_yet(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    [lacking] = mirror.compare(instance, consumer, clock)
    assert mirror.young(lacking, clock)
    clock.advance(mirror.GRACE_SECONDS + 1)
    assert not mirror.young(lacking, clock)


def test_windows_without_a_partition_are_mirrored_by_name_in_one_event(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 2, {"2023-12-31": [0], "2999-01-01": [1]})
    catch_up(instance, consumer, clock)
    [event] = events(instance)
    assert event.partition is None
    assert (event.metadata["window"].value, event.metadata["rows"].value) == ("2023-12-31, 2999-01-01", 2)
    assert behind(instance, consumer, clock) == []


def test_a_window_without_a_partition_asks_nothing_of_what_is_downstream(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
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
    assert catch_up(instance, consumer, clock).events == 1
    evaluated = dg.evaluate_automation_conditions(definitions, instance, cursor=evaluated.cursor)
    assert evaluated.total_requested == 0
    tables.batch(1, 2, {"2024-01-02": [1]})
    clock.advance(mirror.EVERY_SECONDS)
    assert catch_up(instance, consumer, clock).events == 1
    assert dg.evaluate_automation_conditions(definitions, instance, cursor=evaluated.cursor).total_requested == 1


def test_dead_letters_have_an_event_a_minute_with_their_sum(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 2, {"2024-01-01": [0]}, dead=[1])
    newest = tables.batch(2, 5, {}, dead=[2, 3, 4])
    catch_up(instance, consumer, clock)
    [record] = instance.fetch_materializations(dead_letters_key("orders"), limit=9).records
    event = record.asset_materialization
    assert event is not None and event.tags == {DATA_VERSION: data_version(newest)}
    assert event.metadata["dead_letters"].value == 4 and event.metadata["ratio"].value == 0.8
    assert event.metadata["unresolved"].value == 4
    assert behind(instance, consumer, clock) == []


def test_lost_offsets_are_observed(instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock) -> None:
    tables.acquire(10, lost=OffsetRange(0, 10))
    tables.acquire(30, lost=OffsetRange(10, 30))
    assert behind(instance, consumer, clock) == [LOST]
    catch_up(instance, consumer, clock)
    [record] = instance.fetch_observations(staged_key("orders"), limit=9).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["lost_offsets"].value == 30
    assert behind(instance, consumer, clock) == []


def test_moved_positions_are_observed_with_who_and_why(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.move(7, OffsetRange(0, 7), by="ada", why="a bad deploy")
    catch_up(instance, consumer, clock)
    [record] = instance.fetch_observations(staged_key("orders"), limit=9).records
    event = record.asset_observation
    assert event is not None and event.description == "Positions were moved by ada: a bad deploy"
    assert (event.metadata["moved_offsets"].value, event.metadata["by"].value) == (7, "ada")
    assert behind(instance, consumer, clock) == []


def test_a_table_that_does_not_exist_has_nothing_to_mirror(
    instance: DagsterInstance, consumer: Consumer, clock: ManualClock
) -> None:
    assert catch_up(instance, consumer, clock) == mirror.Pass(-1)
    assert mirror.compare(instance, consumer, clock) == []


def test_a_pass_without_news_opens_no_table_and_asks_nothing_of_the_event_log(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    catch_up(instance, consumer, clock)
    clock.advance(mirror.EVERY_SECONDS)
    monkeypatch.setattr(mirror, "commits", None)
    monkeypatch.setattr(mirror, "marks", None)
    assert catch_up(instance, consumer, clock) == mirror.Pass(version_of(consumer))


def test_whether_a_window_is_complete_stands_beside_its_numbers(
    instance: DagsterInstance, consumer: Consumer, tables: Tables, clock: ManualClock
) -> None:
    tables.batch(0, 1, {"2024-01-01": [0]})
    catch_up(instance, consumer, clock)
    assert events(instance)[-1].metadata["complete"].value is False
