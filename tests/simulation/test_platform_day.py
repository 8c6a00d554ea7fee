"""24 hours in under a minute: three consumers, one of which trips its limit, and members that are killed now and then."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer, ConsumerConfig
from orchestration import heartbeat
from orchestration.heartbeat import Beat
from orchestration.sensors import keep
from tests.simulation.platform_day import Platform, Produce, steps

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
PARTITIONS = 2
SEEDS = [1]
HOURS = 24.0


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Platform]:
    clock = ManualClock(MIDNIGHT)
    cluster = MemoryCluster(clock)
    # Nothing here has a process of its own that could be killed.
    monkeypatch.setattr(heartbeat, "own_beat", lambda now: Beat(now, "simulated", 0, 0.0))
    monkeypatch.setattr(keep, "admin", lambda options: MemoryAdmin(cluster))
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(instance, cluster, clock, random.Random(request.param))
        report = instance.report_runless_asset_event

        def heard(event: object) -> None:
            platform.hear(event)
            report(event)  # type: ignore[arg-type]

        monkeypatch.setattr(instance, "report_runless_asset_event", heard)
        monkeypatch.setattr(instance, "report_run_failed", lambda run, message: platform.fail(run.run_id))
        yield platform


def consumer(folder: Path, name: str, **changes: object) -> Consumer:
    definition = {
        "topic": name,
        "schema": {"a": "long"},
        "window": {"every": "hour", "first": "2026-01-01"},
        "batch": {"max_latency_seconds": 50.0},
        **changes,
    }
    config = ConsumerConfig.model_validate(definition)
    return Consumer(name=name, config=config, staged=folder / name / "staged", dead_letters=folder / name / "dead")


def window(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d-%H")


def rows(consumer: Consumer) -> Counter[str]:
    """Rows of each window."""
    return Counter(str(key) for key in DeltaTable(consumer.staged).to_pyarrow_table(columns=["_window"])["_window"].to_pylist())


@pytest.mark.parametrize("platform", SEEDS, indirect=True)
def test_a_day_with_kills_and_a_consumer_that_fails_leaves_every_window_whole_and_no_run_stuck(
    platform: Platform, tmp_path: Path
) -> None:
    fails = {"invalid_records": {"max_consecutive": 10}}
    all_day = [
        consumer(tmp_path, "steady", members=2),
        consumer(tmp_path, "hourly", mode="scheduled", schedule="0 * * * *"),
        consumer(tmp_path, "fails", **fails),
    ]
    producers = {}
    for each in all_day:
        platform.cluster.create_topic(each.config.topic, PARTITIONS)
        platform.add(each)
        producers[each.name] = Produce(platform, each, MemoryProducer(platform.cluster), PARTITIONS, window)
    poisoned = mended = False
    most = Counter[str]()
    for n, hour in enumerate(steps(platform, HOURS)):
        if n % 3 == 0 and hour < HOURS - 1:
            for producer in producers.values():
                producer.some(6)
        if n % 8 == 4:
            lose_one(platform)
        if hour >= 8 and not poisoned:
            poisoned = True
            producers["fails"].some(40, good=False)
        if hour >= 12 and not mended:
            mended = True
            assert "paused" in platform.sensors["fails"].said[-1]
            platform.sensors["fails"].consumer = consumer(tmp_path, "fails")
            platform.sensors["fails"].switched_on = platform.clock.time()
        working = Counter(member.consumer.name for member in platform.members.values() if not member.hangs)
        most |= working
    for each in all_day:
        assert rows(each) == +platform.produced[each.name], each.name
    assert platform.unfinished() - {run for kept in platform.sensors.values() for run in kept.queued} == set(platform.members)
    assert not any(member.hangs for member in platform.members.values())
    assert most["steady"] <= 4 and most["hourly"] <= 2 and most["fails"] <= 2
    assert_bounded(platform)


def lose_one(platform: Platform) -> None:
    """A member ends badly."""
    able = [member for member in platform.members.values() if not member.hangs]
    if able:
        member, how = platform.chance.choice(able), platform.chance.choice(["told", "silent", "hangs"])
        if how == "hangs":
            platform.hang(member)
        else:
            platform.kill(member, told=how == "told")


def assert_bounded(platform: Platform) -> None:
    """At most one event a window and minute."""
    for key, times in platform.events.items():
        for earlier, later in pairwise(times):
            assert later - earlier >= 60.0, f"{key}: {later - earlier:g} s apart"
