"""Dead letters through the whole engine, on the in-memory broker: from a function that rejects to a topic or a table."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from consumers.brokers.memory import MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import InvalidLimits
from consumers.errors import BrokerError, InvalidLimit, InvalidValue
from consumers.processing.context import Context, Surroundings
from consumers.processing.group_positions import GroupPositions
from consumers.processing.processor import Limits, Processor
from consumers.processing.run import run
from consumers.processing.strategies.commit_positions import CommitPolicy, CommitPositions
from consumers.processing.strategies.dead_letters import DeadLetters, DeadLetterSink, TableSink, TopicSink
from consumers.processing.strategies.each import Record, each
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.strategies.run_task import RunTask
from consumers.processing.subscription import Subscription
from consumers.types import Position, TopicPartition
from tests.consumers.parts import contents

TP = TopicPartition("t", 0)
VALUES = [b"1", b"two", b"3", b"", b"5"]
INVALID = [(1, b"two"), (3, b"")]


def number(record: Record) -> int:
    if record.value is None or not record.value.isdigit():
        raise InvalidValue("no number")
    return int(record.value)


@dataclass
class Setting:
    """A topic `t` of five records, two of them invalid, and a topic `dead`."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.cluster = MemoryCluster(self.clock)
        self.around = Surroundings(self.clock)
        for topic in ("t", "dead"):
            self.cluster.create_topic(topic)
        self.produce(VALUES)

    def produce(self, values: list[bytes]) -> None:
        producer = MemoryProducer(self.cluster)
        for value in values:
            producer.send("t", value, b"k", headers=[("trace", b"x")], timestamp_ms=7)
        producer.close()

    def consumer(self, name: str = "m", topic: str = "t") -> MemoryConsumer:
        return MemoryConsumer(self.cluster, topic, "g", name)

    def strategy(
        self, context: Context, sink: DeadLetterSink, limits: InvalidLimits | None = None, patience: float = 0.0
    ) -> Strategy[Any]:
        last = CommitPositions(context.commit, CommitPolicy(patience), self.clock)
        return RunTask(each(number), DeadLetters(sink, limits or InvalidLimits(), last, around=self.around), around=self.around)

    def letters_topic(self) -> DeadLetterSink:
        return TopicSink(MemoryProducer(self.cluster, "letters"), "dead")

    def run(self, sink: DeadLetterSink, limits: InvalidLimits | None = None) -> str:
        broker = self.consumer()
        try:
            return run(
                Subscription("c", "t", poll_records=2),
                broker,
                GroupPositions(broker),
                lambda context: self.strategy(context, sink, limits),
                limits=Limits(until_caught_up=True),
                around=self.around,
            )
        finally:
            broker.close()

    def position(self) -> int | None:
        found: Position = GroupPositions(self.consumer("asks")).positions([TP])[TP]
        return found.offset

    def dead(self) -> list[dict[str, Any]]:
        reader = MemoryConsumer(self.cluster, "dead", partitions=[0])
        reader.subscribe(Listener())
        found: list[dict[str, Any]] = []
        for _ in range(5):
            if (batch := reader.poll(100, 0.0)) is not None:
                found += batch.records.to_pylist()
        return found


class Listener:
    """Reads everything from the beginning."""

    def assigned(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        pass


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_rejected_records_are_in_the_topic_and_positions_pass_them(setting: Setting) -> None:
    assert setting.run(setting.letters_topic()) == "caught up"
    found = setting.dead()
    assert [(r["key"], r["value"]) for r in found] == [(b"k", value) for _, value in INVALID]
    assert [{h["key"]: h["value"] for h in r["headers"]}["weir-offset"] for r in found] == [b"1", b"3"]
    assert [h["key"] for h in found[0]["headers"]][:2] == ["trace", "weir-reason"]
    assert setting.position() == 5


def test_a_dead_letter_that_the_cluster_refuses_stops_the_consumer_before_its_record(setting: Setting) -> None:
    setting.cluster.faults.fail("produce", fatal=True, client="letters")
    with pytest.raises(BrokerError, match="dead letter of t/0 at offset 1"):
        setting.run(setting.letters_topic())
    assert setting.position() == 0
    assert setting.run(setting.letters_topic()) == "caught up"
    assert [r["value"] for r in setting.dead()] == [value for _, value in INVALID]


def test_an_acknowledgement_that_is_lost_leaves_one_dead_letter(setting: Setting) -> None:
    setting.cluster.faults.lose_acknowledgement(client="letters")
    setting.run(setting.letters_topic())
    assert [r["value"] for r in setting.dead()] == [value for _, value in INVALID]


def test_a_limit_that_trips_stops_the_consumer_before_its_records(setting: Setting) -> None:
    setting.produce([b"", b"x", b"y"])
    with pytest.raises(InvalidLimit, match="3 invalid records in a row"):
        setting.run(setting.letters_topic(), InvalidLimits(max_consecutive=2))
    assert setting.position() == 6


def test_a_crash_between_a_dead_letter_and_the_position_leaves_it_in_the_table_once(setting: Setting, tmp_path: Path) -> None:
    def sink() -> TableSink:
        return TableSink(tmp_path, "c", setting.consumer("asks").topic_id(), setting.clock, seconds=0)

    broker = setting.consumer("dies")
    processor = Processor(
        Subscription("c", "t"),
        broker,
        GroupPositions(broker),
        lambda context: setting.strategy(context, sink(), patience=1e9),
        setting.around,
    )
    processor.start()
    for _ in range(5):
        processor.step()
    assert contents(tmp_path).num_rows == 2
    assert setting.position() == 0
    broker.freeze()
    setting.clock.advance(3600)
    assert setting.run(sink()) == "caught up"
    rows = contents(tmp_path).sort_by("_offset").to_pylist()
    assert [(row["_offset"], row["_value"]) for row in rows] == INVALID
    assert setting.position() == 5
