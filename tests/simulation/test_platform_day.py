"""24 hours in under a minute: three consumers, one of which trips its limit, and members that are killed now and then."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer, ConsumerConfig
from orchestration import heartbeat, mirror
from orchestration.heartbeat import Beat
from orchestration.sensors import keep
from orchestration.sensors.decision import Decision, Facts
from tests.simulation.platform_day import STEP_SECONDS, Platform, Produce, findings, steps

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
PARTITIONS = 2
SEEDS = [1]
HOURS = 24.0
SHIFT_HOURS = 5.0


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
        # A member polls at each step of the clock, which counts as on time.
        "membership": {"max_poll_seconds": 2 * STEP_SECONDS},
        **changes,
    }
    config = ConsumerConfig.model_validate(definition)
    return Consumer(name=name, config=config, staged=folder / name / "staged", dead_letters=folder / name / "dead")


def window(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d-%H")


@pytest.mark.parametrize("platform", SEEDS, indirect=True)
def test_a_day_with_kills_and_a_consumer_that_fails_leaves_every_window_whole_and_no_run_stuck(
    platform: Platform, tmp_path: Path
) -> None:
    fails = {"invalid_records": {"max_consecutive": 10}}
    steady = consumer(tmp_path, "steady", members=2)
    hourly = consumer(tmp_path, "hourly", mode="scheduled", schedule="0 * * * *")
    producers = [produce(platform, each) for each in (steady, hourly, consumer(tmp_path, "fails", **fails))]
    poisoned = mended = False
    for hour in day(platform, producers, HOURS):
        if hour >= 8 and not poisoned:
            poisoned = True
            producers[2].some(40, good=False)
        if hour >= 12 and not mended:
            mended = True
            assert "paused" in platform.sensors["fails"].said[-1]
            platform.sensors["fails"].consumer = consumer(tmp_path, "fails")
            platform.sensors["fails"].switched_on = platform.clock.time()
    assert mended
    assert findings(platform, always=["steady"]) == []


@pytest.mark.parametrize("platform", [2], indirect=True)
def test_events_that_nobody_bounds_are_found(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "EVERY_SECONDS", 0.0)
    pass_a_shift(platform, consumer(tmp_path, "steady", members=2), kills=False)
    assert {said.split()[0] for said in findings(platform, always=["steady"])} == {"staged/steady"}


@pytest.mark.parametrize("platform", [3], indirect=True)
def test_a_lost_commit_is_found(platform: Platform, tmp_path: Path) -> None:
    steady = consumer(tmp_path, "steady")
    pass_a_shift(platform, steady)
    DeltaTable(steady.staged).delete("_offset = 7")
    (said,) = findings(platform, always=["steady"])
    assert said.startswith("steady 2026-01-01-")


@pytest.mark.parametrize("platform", [4], indirect=True)
def test_a_run_that_hangs_and_is_never_ended_is_found(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "end_dead", lambda *seen: [])
    pass_a_shift(platform, consumer(tmp_path, "steady"), kills=False, hangs=True)
    said = " ".join(findings(platform, always=["steady"]))
    assert "is stuck" in said and "no member for" in said


@pytest.mark.parametrize("platform", [5], indirect=True)
def test_a_run_that_is_never_replaced_is_found(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = keep.decide

    def first_only(name: str, facts: Facts) -> Decision:
        return decide(name, facts) if facts.newest_run is None else Decision((), "planted: no more")

    monkeypatch.setattr(keep, "decide", first_only)
    pass_a_shift(platform, consumer(tmp_path, "steady"))
    assert any(said.startswith("steady: no member for") for said in findings(platform, always=["steady"]))


def produce(platform: Platform, consumer: Consumer) -> Produce:
    """The consumer's topic, and its sensor switched on."""
    platform.cluster.create_topic(consumer.config.topic, PARTITIONS)
    platform.add(consumer)
    return Produce(platform, consumer, MemoryProducer(platform.cluster), PARTITIONS, window)


def day(platform: Platform, producers: list[Produce], hours: float, kills: bool = True) -> Iterator[float]:
    """The hours as they pass; the last one and a half brings neither records nor kills."""
    for n, hour in enumerate(steps(platform, hours)):
        if hour < hours - 1.5:
            if n % 3 == 0:
                for producer in producers:
                    producer.some(6)
            if kills and n % 5 == 2:
                lose_one(platform)
        yield hour


def pass_a_shift(platform: Platform, consumer: Consumer, kills: bool = True, hangs: bool = False) -> None:
    """Five hours of one consumer. `hangs`: whatever works in the second hour is stopped."""
    for hour in day(platform, [produce(platform, consumer)], SHIFT_HOURS, kills):
        if hangs and 1 <= hour < 2:
            for member in [each for each in platform.members.values() if not each.hangs]:
                platform.hang(member)


def lose_one(platform: Platform) -> None:
    """A member ends badly."""
    able = [member for member in platform.members.values() if not member.hangs]
    if able:
        member, how = platform.chance.choice(able), platform.chance.choice(["told", "silent", "hangs"])
        if how == "hangs":
            platform.hang(member)
        else:
            platform.kill(member, told=how == "told")
