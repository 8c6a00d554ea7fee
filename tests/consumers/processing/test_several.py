"""Several topics of one consumer: members side by side that end, fail, beat and commit as one."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock, SystemClock
from consumers.config import Consumer
from consumers.errors import BrokerError, FatalError, InvalidLimit
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.processing.several import LOOK_SECONDS, Hooks, IngestResult, Several, Work
from consumers.staging.log import StagedCommit
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition
from tests.consumers.parts import DAY_MS, config, contents

DONE = IngestResult(1, 2, 3, "caught up")
PATIENCE = 20.0


def consumer(folder: Path, **changes: Any) -> Consumer:
    definition = config(topic=None, **changes)
    return Consumer(name="c", config=definition, staged=folder / "staged", dead_letters=folder / "dead")


def hooks(
    on_commit: Callable[[StagedCommit], None] = lambda commit: None,
    heartbeat: Callable[[], None] = lambda: None,
    until_caught_up: bool = True,
    max_seconds: float | None = None,
) -> Hooks:
    return Hooks(threading.Event(), Limits(until_caught_up, max_seconds), on_commit, heartbeat)


def cluster_of(**topics: list[bytes]) -> MemoryCluster:
    cluster = MemoryCluster(ManualClock(DAY_MS / 1000))
    producer = MemoryProducer(cluster)
    for topic, values in topics.items():
        cluster.create_topic(topic)
        for value in values:
            producer.send(topic, value)
    producer.close()
    return cluster


def staging(cluster: MemoryCluster) -> Work:
    def work(alone: Consumer, told: Hooks) -> IngestResult:
        around = Surroundings(clock=cluster.clock)
        broker = MemoryConsumer(cluster, alone.config.topic, alone.group)
        return stage_from(broker, alone, "m", told.stop, told.limits, told.on_commit, around, heartbeat=told.heartbeat)

    return work


def places(table: Path) -> list[tuple[str, int]]:
    rows = contents(table).select(["_topic", "_offset"]).to_pylist()
    return sorted((row["_topic"], row["_offset"]) for row in rows)


@pytest.mark.parametrize("given", [{"topics": ["a", "b"]}, {"topic_pattern": "[ab]"}])
def test_several_topics_fill_one_table_each_record_once(given: dict[str, Any], tmp_path: Path) -> None:
    cluster = cluster_of(a=[b'{"a":1}', b"junk", b'{"a":2}'], b=[b"junk", b'{"a":3}'], other=[b'{"a":9}'])
    parts = consumer(tmp_path, **given)
    told: list[tuple[str, str]] = []

    def hear(commit: StagedCommit) -> None:
        told.append((threading.current_thread().name, next(iter(commit.ranges)).topic))

    for _ in range(2):
        result = Several(
            parts, MemoryAdmin(cluster).topics, staging(cluster), Surroundings(clock=cluster.clock), hooks(hear)
        ).run()
    assert places(parts.staged) == [("a", 0), ("a", 2), ("b", 1)]
    assert places(parts.dead_letters) == [("a", 1), ("b", 0)]
    for topic, end in (("a", 3), ("b", 2)):
        assert committed_positions(parts.staged, "c", topic, 1) == {TopicPartition(topic, 0): end}
    assert sorted(told) == [(threading.current_thread().name, "a"), (threading.current_thread().name, "b")]
    assert result == IngestResult(0, 0, 0, "caught up")


def test_the_first_error_stops_all_and_is_raised(tmp_path: Path) -> None:
    cluster = cluster_of(a=[b"junk"] * 2, b=[])
    parts = consumer(tmp_path, topics=["a", "b"], invalid_records={"max_consecutive": 1})
    several = Several(parts, list, staging(cluster), Surroundings(clock=cluster.clock), hooks(until_caught_up=False))
    with pytest.raises(InvalidLimit, match="a/0: 2 invalid records in a row"):
        several.run()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("c-")]


def test_a_stop_reaches_every_member(tmp_path: Path) -> None:
    told = hooks(until_caught_up=False)
    started = threading.Barrier(3)

    def work(alone: Consumer, mine: Hooks) -> IngestResult:
        started.wait(PATIENCE)
        assert mine.stop.wait(PATIENCE)
        return IngestResult(1, 1, 0, "stopped")

    def stop() -> None:
        started.wait(PATIENCE)
        told.stop.set()

    stopper = threading.Thread(target=stop)
    stopper.start()
    result = Several(consumer(tmp_path, topics=["a", "b"]), list, work, Surroundings(clock=SystemClock()), told).run()
    stopper.join()
    assert result == IngestResult(2, 2, 0, "stopped")


def test_there_is_a_heartbeat_only_while_every_member_gets_on(tmp_path: Path) -> None:
    beats = threading.Semaphore(0)
    heard: list[int] = []
    both, stuck = threading.Event(), threading.Event()

    def beat() -> None:
        heard.append(1)
        beats.release()

    def work(alone: Consumer, mine: Hooks) -> IngestResult:
        mine.heartbeat()
        if alone.config.topic == "a":
            assert beats.acquire(timeout=PATIENCE)
            both.set()
            for _ in range(3):
                mine.heartbeat()
            # What b does not do for a while, nothing that a does can stand for.
            assert not beats.acquire(timeout=0.5)
            stuck.set()
        else:
            assert stuck.wait(PATIENCE)
            mine.heartbeat()
            assert beats.acquire(timeout=PATIENCE)
        return DONE

    Several(consumer(tmp_path, topics=["a", "b"]), list, work, Surroundings(clock=SystemClock()), hooks(heartbeat=beat)).run()
    assert both.is_set() and len(heard) >= 2


def test_topics_share_the_memory_and_are_told_the_time_that_is_left(tmp_path: Path) -> None:
    seen: dict[str, tuple[int, float | None]] = {}

    def work(alone: Consumer, mine: Hooks) -> IngestResult:
        seen[alone.config.topic] = (alone.config.batch.max_bytes, mine.limits.max_seconds)
        return DONE

    parts = consumer(tmp_path, topics=["a", "b", "c"], batch={"max_bytes": 9_000})
    result = Several(parts, list, work, Surroundings(clock=ManualClock()), hooks(max_seconds=60.0)).run()
    assert seen == dict.fromkeys("abc", (3_000, 60.0))
    assert result == IngestResult(3, 6, 9, "caught up")


def test_a_new_topic_that_is_like_the_pattern_joins_even_after_the_cluster_did_not_answer(tmp_path: Path) -> None:
    clock, told = ManualClock(), hooks(until_caught_up=False)
    existing: list[list[str]] = [["a"], [], ["a", "b", "other"]]
    joined: list[str] = []
    asked = threading.Semaphore(0)

    def topics() -> list[str]:
        asked.release()
        found = existing.pop(0) if existing else ["a", "b"]
        if not found:
            raise BrokerError("Kafka did not answer")
        return found

    def work(alone: Consumer, mine: Hooks) -> IngestResult:
        joined.append(alone.config.topic)
        if alone.config.topic == "b":
            told.stop.set()
        assert mine.stop.wait(PATIENCE)
        return DONE

    def tick() -> None:
        for _ in range(3):
            assert asked.acquire(timeout=PATIENCE)
            clock.advance(LOOK_SECONDS)

    ticker = threading.Thread(target=tick)
    ticker.start()
    Several(consumer(tmp_path, topic_pattern="[ab]"), topics, work, Surroundings(clock=clock), told).run()
    told.stop.set()
    ticker.join()
    assert joined == ["a", "b"]


def test_a_stop_reaches_the_members_while_the_cluster_is_asked_for_topics(tmp_path: Path) -> None:
    clock, told, ended = ManualClock(), hooks(until_caught_up=False), threading.Event()
    asked: list[bool] = []

    def topics() -> list[str]:
        if asked:
            told.stop.set()
        asked.append(not told.stop.is_set() or ended.wait(PATIENCE))
        return ["a"]

    def work(alone: Consumer, mine: Hooks) -> IngestResult:
        clock.advance(LOOK_SECONDS)
        assert mine.stop.wait(PATIENCE)
        ended.set()
        return DONE

    Several(consumer(tmp_path, topic_pattern="a"), topics, work, Surroundings(clock=clock), told).run()
    assert asked == [True, True]


def test_a_pattern_without_topics_ends_when_it_is_to_be_caught_up(tmp_path: Path) -> None:
    several = Several(
        consumer(tmp_path, topic_pattern="x"), list, lambda alone, mine: DONE, Surroundings(clock=ManualClock()), hooks()
    )
    assert several.run() == IngestResult(0, 0, 0, "there is no topic to read")


def test_a_cluster_that_does_not_answer_at_the_start_is_an_error(tmp_path: Path) -> None:
    def topics() -> list[str]:
        raise BrokerError("Kafka did not answer")

    with pytest.raises(FatalError, match="did not answer"):
        Several(consumer(tmp_path, topic_pattern="x"), topics, lambda alone, mine: DONE, Surroundings(), hooks()).run()
