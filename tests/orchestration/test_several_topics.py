"""A consumer of two topics: staged into one table, seen, moved, rebuilt, replayed and repaired as one."""

import functools
import json
import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.errors import ConfigError
from consumers.processing.backfill.window import Backfill
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.move import Mover
from consumers.processing.processor import Limits
from consumers.processing.replay import Selection, replay
from consumers.processing.several import Hooks, IngestResult, Several
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition
from orchestration import completeness, mirror
from orchestration.changes import changes
from orchestration.checks.definitions import findings
from orchestration.components import consumer_assets as assets
from orchestration.components import consumer_backfill
from orchestration.mirror_events import staged_key, topic_key
from orchestration.operations.shadow import shadow_job
from orchestration.operations.swap import swap_job
from orchestration.operations.topics import one_topic, partition_of
from orchestration.repair import Repairer
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import topics as topics_sensor
from orchestration.sensors.facts import marks_of, next_offsets, offsets_at, total_lag
from orchestration.status import consumer_status
from orchestration.testing import run_consumer
from tests.consumers.parts import DAY_MS, config, contents

DAY = "2013-01-01"
REQUIRED = {"type": "long", "nullable": False}
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
WINDOW: dict[str, Any] = {"every": "day", "first": "2013-01-01"}


class Two:
    """Topics `a` and `b` (and `other`), each with two rows and a dead letter, and the consumer `c` that has staged both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(DAY_MS / 1000 + 864_000)
        # Commits are dated by the real clock: Dagster hears of them by a clock that is ahead of it.
        self.late = ManualClock(4e9)
        self.cluster = MemoryCluster(self.clock)
        self.admin = MemoryAdmin(self.cluster)
        for topic in ("a", "b", "other"):
            self.cluster.create_topic(topic)
            self.send(topic, {"a": 1, "b": topic}, {}, {"a": 2, "b": topic})
        self.consumer = self.defined()
        self.stage()

    def defined(self, **changes: Any) -> Consumer:
        definition = config(**{"topic": None, "topic_pattern": "[ab]", "schema": {"a": REQUIRED}, **changes})
        self.consumer = Consumer(name="c", config=definition, staged=self.folder / "staged", dead_letters=self.folder / "dead")
        return self.consumer

    def send(self, topic: str, *values: Any, days: int = 0) -> None:
        producer = MemoryProducer(self.cluster)
        for value in values:
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(topic, text, timestamp_ms=DAY_MS + days * 86_400_000)
        producer.close()

    def stage(self) -> IngestResult:
        around = Surroundings(clock=self.clock)

        def work(alone: Consumer, told: Hooks) -> IngestResult:
            broker = MemoryConsumer(self.cluster, alone.config.topic, alone.group)
            return stage_from(broker, alone, "m", told.stop, told.limits, told.on_commit, around)

        told = Hooks(threading.Event(), Limits(until_caught_up=True), lambda commit: None, lambda: None)
        return Several(self.consumer, self.admin.topics, work, around, told).run()

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        found = contents(self.consumer.staged).to_pylist()
        return sorted(tuple(row[name] for name in ("_topic", "_offset", *columns)) for row in found)

    def mirror(self, instance: dg.DagsterInstance) -> None:
        mirror.catch_up(instance, self.consumer, instance.report_runless_asset_event, self.late)

    def failing(self, instance: dg.DagsterInstance) -> list[str]:
        """The checks that do not pass."""
        return [name for name, finding in findings(instance, self.consumer, self.late).items() if not finding.passed]

    def advance(self, instance: dg.DagsterInstance) -> float | None:
        """Up to when the table is valid."""
        marks = marks_of(self.admin, self.consumer)
        completeness.advance(instance, self.consumer, marks, next_offsets(self.admin, self.consumer, marks), self.clock)
        return completeness.valid_through(instance, "c")

    def position(self, topic: str) -> int:
        return committed_positions(self.consumer.staged, "c", topic, 1)[TopicPartition(topic, 0)]


def _table(event: dg.AssetMaterialization, name: str) -> list[dict[str, Any]]:
    shown = event.metadata[name]
    assert isinstance(shown, dg.TableMetadataValue)
    return [dict(row.data) for row in shown.records]


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def test_lag_and_positions_are_those_of_all_topics(two: Two) -> None:
    two.send("b", {"a": 3})
    marks = marks_of(two.admin, two.consumer)
    positions = next_offsets(two.admin, two.consumer, marks)
    assert positions == {A: 3, B: 3} and total_lag(marks, positions) == 1
    assert offsets_at(two.admin, positions, DAY_MS) == {A: 0, B: 0}


def test_the_status_names_each_topics_partitions(two: Two) -> None:
    two.send("b", {"a": 3})
    status = consumer_status(two.consumer, two.admin)
    assert status.error is None and status.topic == "like [ab]"
    assert [(p.topic, p.partition, p.position, p.lag) for p in status.partitions] == [("a", 0, 3, 0), ("b", 0, 3, 1)]
    two.cluster.delete_records({B: 4})
    [problem] = consumer_status(two.consumer, two.admin).problems
    assert "c: b/0: offsets 3 to 3 are gone" in problem


def test_every_topic_is_observed_and_the_consumer_is_judged_once(two: Two, instance: dg.DagsterInstance) -> None:
    two.send("b", {"a": 3})
    kafka = KafkaResource(bootstrap_servers="x")
    result = topics_sensor.tick(instance, [two.consumer], kafka, None, two.clock, lambda options: two.admin)
    observed = [event for event in result.asset_events if isinstance(event, dg.AssetObservation)]
    assert {event.asset_key: event.metadata["lag"].value for event in observed} == {topic_key("a"): 0, topic_key("b"): 1}
    judged = [event.check_name for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert sorted(judged) == ["retention", "time_lag"]


def test_a_pattern_that_cannot_be_looked_up_is_said_and_hides_no_topic_that_is_named(
    two: Two, instance: dg.DagsterInstance
) -> None:
    named = Consumer(name="n", config=config(topic="a"), staged=two.folder / "n", dead_letters=two.folder / "m")
    two.cluster.faults.fail("topics", times=100, fatal=True)
    kafka = KafkaResource(bootstrap_servers="x")
    result = topics_sensor.tick(instance, [two.consumer, named], kafka, None, two.clock, lambda options: two.admin)
    observed = [event.asset_key for event in result.asset_events if isinstance(event, dg.AssetObservation)]
    assert topic_key("a") in observed and topic_key("b") not in observed
    assert result.skip_reason is not None and "refused 'topics'" in str(result.skip_reason.skip_message)
    [all_] = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    assert str(all_.metadata["problems"].value).count("refused 'topics'") == 1


def test_the_assets_of_several_topics_feed_one_table(two: Two) -> None:
    named = two.defined(topic_pattern=None, topics=["a", "b"])
    both = [*assets.consumer_assets(named), *assets.topic_assets([named])]
    graph = dg.Definitions(assets=both, resources={"kafka": KafkaResource()}).resolve_asset_graph()
    assert graph.get(staged_key("c")).parent_keys == {topic_key("a"), topic_key("b")}


def test_one_topics_positions_are_moved_and_the_others_stay(two: Two) -> None:
    before = two.rows("a")
    Mover(one_topic(two.consumer, "b"), two.admin, two.clock).move("earliest", by="me", why="test", member="m")
    assert (two.position("a"), two.position("b")) == (3, 0)
    assert two.rows("a") == [row for row in before if row[0] == "a"]
    two.stage()
    assert two.rows("a") == before


def test_a_topic_has_to_be_named_where_there_are_several(two: Two) -> None:
    with pytest.raises(ConfigError, match="name one that c reads, which are the topics like"):
        one_topic(two.consumer, "")
    with pytest.raises(ConfigError, match="name one"):
        one_topic(two.consumer, "other")
    assert partition_of(two.consumer, "b/0") == B
    assert partition_of(two.consumer.of_topic("a"), "0") == A


def test_a_window_is_built_again_from_one_topic_after_the_other(two: Two) -> None:
    two.defined(schema={"a": REQUIRED, "b": "string"})
    for topic in "ab":
        connect = functools.partial(MemoryConsumer, two.cluster, topic)
        backfill = Backfill(two.consumer.of_topic(topic), connect, two.clock, shared=True)
        rebuilt = backfill.window(DAY)
        backfill.close()
        assert (rebuilt.made.added, rebuilt.made.removed) == (0, 0)
    assert two.rows("a", "b") == [("a", 0, 1, "a"), ("a", 2, 2, "a"), ("b", 0, 1, "b"), ("b", 2, 2, "b")]
    assert (two.position("a"), two.position("b")) == (3, 3)


def test_rows_of_a_topic_that_is_no_longer_read_stay_in_a_window_that_is_built_again(two: Two) -> None:
    two.defined(topic_pattern="[a]", schema={"a": REQUIRED, "b": "string"})
    backfill = Backfill(two.consumer.of_topic("a"), functools.partial(MemoryConsumer, two.cluster, "a"), two.clock, shared=True)
    assert backfill.window(DAY).commit is not None
    assert two.rows("a", "b") == [("a", 0, 1, "a"), ("a", 2, 2, "a"), ("b", 0, 1, None), ("b", 2, 2, None)]


def test_a_backfill_makes_one_event_of_a_window_and_takes_named_offsets_for_their_topic(
    two: Two, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_backfill, "admin", lambda options: two.admin)
    monkeypatch.setattr(
        consumer_backfill, "reader", lambda options, alone, clock: MemoryConsumer(two.cluster, alone.config.topic)
    )
    two.cluster.create_topic("c")
    two.defined(topic_pattern="[abc]", schema={"a": REQUIRED, "b": "string"}, window=WINDOW)
    [asset] = [each for each in assets.consumer_assets(two.consumer) if isinstance(each, dg.AssetsDefinition)]
    config = {"ops": {"rebuild_c": {"config": {"offsets": {"b/0": [0, 3]}}}}}
    kafka = {"kafka": KafkaResource(bootstrap_servers="x")}
    assert dg.materialize([asset], resources=kafka, instance=instance, partition_key=DAY, run_config=config).success
    assert two.rows("b") == [("a", 0, "a"), ("a", 2, "a"), ("b", 0, "b"), ("b", 2, "b")]
    [record] = instance.fetch_materializations(staged_key("c"), limit=10).records
    event = record.asset_materialization
    assert event is not None and event.metadata["dagster/partition_row_count"].value == 4
    # The dead letter between the rows is of offsets that were named for b alone.
    assert [row["partition"] for row in _table(event, "offsets_read")] == ["a/0", "b/0"]
    assert event.metadata["records_read"].value == 6


def test_a_shadow_of_several_topics_is_refused_before_anything_is_written(two: Two, instance: dg.DagsterInstance) -> None:
    before = {path: path.stat().st_mtime_ns for path in two.folder.rglob("*")}
    two.defined(schema={"a": "string"})
    swap = {"ops": {"swap_shadow_of_c": {"config": {"id": "x", "confirm": "c"}}}}
    shadow = {"ops": {"cast_shadow_of_c": {"config": {"id": "x"}}}}
    kafka = {"kafka": KafkaResource(bootstrap_servers="localhost:1")}
    with pytest.raises(ConfigError, match=r"c reads the topics like \[ab\], and shadows are of tables of one topic. Nothing was"):
        shadow_job(two.consumer).execute_in_process(shadow, resources=kafka, instance=instance)
    with pytest.raises(ConfigError, match="a new name has a new table"):
        swap_job(two.consumer).execute_in_process(swap, instance=instance)
    assert {path: path.stat().st_mtime_ns for path in two.folder.rglob("*")} == before
    [change] = changes(two.consumer)
    assert change.level == "rebuild" and "shadow_c" not in change.do


def test_topics_that_are_no_longer_read_are_said(two: Two) -> None:
    [change] = changes(two.defined(topic_pattern="[a]"))
    assert (change.level, change.what) == ("note", "no longer read: b")
    [change] = changes(two.defined(topic_pattern="other"))
    assert change.what == "the topic was a, b and is like other"


def test_dead_letters_of_all_topics_are_replayed(two: Two) -> None:
    two.defined(schema={"a": "long"})
    result = replay(two.consumer, Selection(), None, two.clock)
    assert (result.selected, result.fixed) == (2, 2)
    assert two.rows("a") == [(topic, offset, a) for topic in "ab" for offset, a in ((0, 1), (1, None), (2, 2))]


def test_repair_finds_nothing_wrong_and_moves_up_the_group_of_the_topic_that_is_behind(
    two: Two, instance: dg.DagsterInstance
) -> None:
    repairer = Repairer(instance, two.consumer, two.admin, two.clock)
    assert repairer.look(events=False) == []
    two.admin.set_group_offsets(two.consumer.group, {B: 1})
    [difference] = repairer.look(events=False)
    assert difference.kind == "group" and difference.where == str(B)
    assert [outcome.mended for outcome in repairer.mend([difference])] == [True]
    assert two.admin.group_offsets(two.consumer.group, "b") == {B: 3}


def test_checks_mirror_and_completeness_hold_for_all_topics_whatever_was_done_to_one(
    two: Two, instance: dg.DagsterInstance
) -> None:
    two.defined(window=WINDOW)
    assert two.failing(instance) == ["mirrored"]
    two.mirror(instance)
    assert two.failing(instance) == []
    Mover(one_topic(two.consumer, "b"), two.admin, two.clock).move("earliest", by="me", why="test", member="m")
    two.send("b", {"a": 3})
    two.stage()
    two.defined(window=WINDOW, schema={"a": "long"})
    assert replay(two.consumer, Selection(), None, two.clock).fixed == 2
    backfill = Backfill(two.consumer.of_topic("a"), functools.partial(MemoryConsumer, two.cluster, "a"), two.clock, shared=True)
    backfill.window(DAY)
    backfill.close()
    two.late.advance(120)
    two.mirror(instance)
    assert two.failing(instance) == []
    assert two.rows("a")[3:] == [("b", 0, 1), ("b", 1, None), ("b", 2, 2), ("b", 3, 3)]
    [record] = instance.fetch_materializations(staged_key("c"), limit=1).records
    assert record.partition_key == DAY
    assert not Repairer(instance, two.consumer, two.admin, two.clock).look()


def test_a_window_is_complete_once_every_topic_has_passed_it(two: Two, instance: dg.DagsterInstance) -> None:
    two.defined(window=WINDOW | {"idle_seconds": 1e9})
    two.send("a", *({"a": n} for n in range(3)), days=5)
    two.stage()
    assert two.advance(instance) == DAY_MS / 1000 - two.consumer.config.window.grace_seconds
    two.send("b", {"a": 4}, days=3)
    two.stage()
    through = two.advance(instance)
    assert through == DAY_MS / 1000 + 3 * 86_400 - two.consumer.config.window.grace_seconds


def test_a_test_of_a_definition_gives_records_of_several_topics(two: Two) -> None:
    found = run_consumer(two.consumer, [{"topic": "a", "value": {"a": 1}}, {"topic": "b", "value": {"a": 2}}])
    assert sorted(row["a"] for row in found.rows) == [1, 2]
    assert sorted(found.table["_topic"].to_pylist()) == ["a", "b"]
    with pytest.raises(ValueError, match="does not read the topic other; it reads a"):
        run_consumer(two.consumer, [{"topic": "a", "value": {"a": 1}}, {"topic": "other", "value": {"a": 2}}])
    with pytest.raises(ValueError, match="say of each record in which `topic` it is"):
        run_consumer(two.consumer, [{"value": {"a": 1}}])
