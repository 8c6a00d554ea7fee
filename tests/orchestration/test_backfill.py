"""Staged windows materialized: an event for each, those that fail alone fail, and the mirror takes them for its own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from consumers.brokers.memory import MemoryConsumer
from consumers.clock import SystemClock
from consumers.errors import ConfigError
from consumers.types import OffsetRange
from orchestration import mirror
from orchestration.components import consumer_backfill
from orchestration.components.consumer_assets import consumer_assets, partitions
from orchestration.components.consumer_backfill import RebuildConfig, choices_of
from orchestration.mirror_events import DATA_VERSION, staged_key
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.repair import suspicion
from tests.consumers.parts import TP
from tests.consumers.processing.backfill.topic import FIRST, SECOND, THIRD, Topic

KEY = staged_key("c")
WIDER = {"a": "long", "b": {"type": "long", "path": "a"}}
WINDOW = {"every": "day", "first": "2013-01-01"}


class Staged:
    """The topic of three days, its staged asset, and an instance of Dagster."""

    def __init__(self, topic: Topic, instance: dg.DagsterInstance) -> None:
        self.topic = topic
        self.instance = instance

    def materialize(self, first: str = FIRST, last: str = THIRD, config: Any = None, **tags: str) -> dg.ExecuteInProcessResult:
        """One run over a range of windows, as a backfill makes it."""
        [asset] = [each for each in consumer_assets(self.topic.consumer) if isinstance(each, dg.AssetsDefinition)]
        between = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        return dg.materialize(
            [asset],
            instance=self.instance,
            resources={"kafka": KafkaResource(bootstrap_servers="localhost:1")},
            run_config={"ops": {"rebuild_c": {"config": config}}} if config else None,
            tags=between | {name.replace("__", "/"): value for name, value in tags.items()},
            raise_on_error=False,
        )

    def events(self) -> dict[str, dg.AssetMaterialization]:
        """The newest event of each window."""
        records = self.instance.fetch_materializations(KEY, limit=1000, ascending=True).records
        return {str(r.partition_key): r.asset_materialization for r in records if r.asset_materialization}

    def mirror(self) -> int:
        """A pass of the mirror; how many events it wrote."""
        return mirror.catch_up(self.instance, self.topic.consumer, self.instance.report_runless_asset_event, SystemClock()).events

    def versions(self) -> dict[str, str]:
        return {window: (event.tags or {})[DATA_VERSION] for window, event in self.events().items()}


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Staged:
    topic = Topic(tmp_path, window=WINDOW)
    topic.produce(0, 1)
    topic.produce(2, day=1)
    topic.produce(3, day=2)
    topic.stage()
    monkeypatch.setattr(consumer_backfill, "reader", lambda *_: MemoryConsumer(topic.cluster, "t"))
    made = Staged(topic, dg.DagsterInstance.ephemeral())
    assert made.mirror() == 3
    return made


def test_every_window_has_an_event_with_what_was_done(staged: Staged) -> None:
    staged.topic.defined(window=WINDOW, schema=WIDER)
    assert staged.materialize().success
    found = staged.events()[FIRST]
    numbers = {name: found.metadata[name].value for name in ("rows", "added", "removed", "unchanged", "records_read", "kind")}
    assert numbers == {"rows": 2, "added": 0, "removed": 0, "unchanged": False, "records_read": 2, "kind": "rewrite"}
    assert staged.topic.rows(FIRST, "b") == [0, 1]


def test_a_changed_window_has_a_new_data_version_which_the_mirror_knows(staged: Staged) -> None:
    before = staged.versions()
    staged.topic.defined(window=WINDOW, schema=WIDER)
    staged.materialize(FIRST, SECOND)
    after = staged.versions()
    assert {window for window in before if before[window] != after[window]} == {FIRST, SECOND}
    mirror.distrust(staged.instance, staged.topic.consumer)
    assert mirror.compare(staged.instance, staged.topic.consumer, SystemClock()) == []


def test_an_unchanged_window_says_so_and_keeps_its_data_version(staged: Staged) -> None:
    before = staged.versions()
    assert staged.materialize().success
    assert staged.versions() == before
    found = staged.events()[FIRST]
    assert (found.metadata["unchanged"].value, found.metadata["rows"].value) == (True, 0)


def test_an_unchanged_window_that_dagster_knows_nothing_of_has_an_event_of_its_commits(staged: Staged) -> None:
    before = staged.events()[FIRST]
    staged.instance.wipe_assets([KEY])
    assert staged.materialize(FIRST, FIRST).success
    now, _ = suspicion(staged.instance, staged.topic.consumer, None)
    assert suspicion(staged.instance, staged.topic.consumer, replace(now, event=-1))[1] == "", "nobody reported it by hand"
    found = staged.events()[FIRST]
    assert found.metadata["unchanged"].value is True
    for name in ("commit_id", "delta_version", "rows", "ranges"):
        assert found.metadata[name] == before.metadata[name]
    mirror.distrust(staged.instance, staged.topic.consumer)
    behind = mirror.compare(staged.instance, staged.topic.consumer, SystemClock())
    assert {each.part for each in behind} == {SECOND, THIRD}


def test_windows_that_fail_alone_fail_and_the_others_are_materialized(staged: Staged) -> None:
    staged.topic.cluster.delete_records({TP: 3})
    staged.topic.defined(window=WINDOW, schema=WIDER)
    run = staged.materialize()
    assert not run.success
    message = str(run.failure_data_for_node("rebuild_c"))
    assert "2 of 3 windows of c failed and are as they were: 2013-01-01, 2013-01-02. The others are done" in message
    assert staged.topic.rows(FIRST, "_offset", "b") == [(0, None), (1, None)] and staged.topic.rows(THIRD, "b") == [3]
    status = get_and_update_asset_status_cache_value(staged.instance, KEY, partitions(staged.topic.consumer))
    assert status is not None
    failed = status.deserialize_failed_partition_subsets(partitions(staged.topic.consumer))
    assert sorted(failed.get_partition_keys()) == [FIRST, SECOND]


@pytest.mark.parametrize("how", ["config", "tag"])
def test_partial_is_given_by_config_or_by_tag(staged: Staged, how: str) -> None:
    staged.topic.cluster.delete_records({TP: 1})
    staged.topic.defined(window=WINDOW, schema=WIDER)
    if how == "config":
        run = staged.materialize(FIRST, FIRST, {"partial": True})
    else:
        run = staged.materialize(FIRST, FIRST, weir__partial="true")
    assert run.success
    assert staged.topic.rows(FIRST, "_offset", "b") == [(0, None), (1, 1)]
    assert staged.events()[FIRST].metadata["rows_not_read_again"].value == 1


def test_a_window_without_anything_becomes_materialized_and_empty(staged: Staged) -> None:
    assert staged.materialize("2013-01-07", "2013-01-07").success
    assert staged.events()["2013-01-07"].metadata["dagster/partition_row_count"].value == 0


def test_offsets_that_are_no_ranges_are_refused(tmp_path: Path) -> None:
    consumer = Topic(tmp_path).consumer
    assert choices_of(consumer, RebuildConfig(offsets={"0": [3, 9]}), {}, "r").offsets == {TP: OffsetRange(3, 9)}
    for wrong in ({"x": [1, 2]}, {"0": [1]}, {"0": [9, 3]}):
        with pytest.raises(ConfigError, match="Nothing was read"):
            choices_of(consumer, RebuildConfig(offsets=wrong), {}, "r")
