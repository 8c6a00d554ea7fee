"""`DeadLetters` under the conformance suite, with both of its sinks."""

from contextlib import contextmanager
from typing import Any

from consumers.brokers.memory import MemoryCluster, MemoryProducer
from consumers.config import InvalidLimits
from consumers.processing.strategies.dead_letters import DeadLetters, TableSink, TopicSink
from consumers.processing.strategies.protocol import Strategy
from tests.contracts.strategies import Middle, Opened, Room


@contextmanager
def to_topic(room: Room, after: Strategy[Any]) -> Opened:
    cluster = MemoryCluster(room.around.clock)
    cluster.create_topic("dead")
    yield DeadLetters(TopicSink(MemoryProducer(cluster), "dead"), InvalidLimits(), after, around=room.around)


@contextmanager
def to_table(room: Room, after: Strategy[Any]) -> Opened:
    yield DeadLetters(TableSink(room.path, "c", "id", room.around.clock), InvalidLimits(), after, around=room.around)


MIDDLES = [
    Middle("DeadLetters-topic", to_topic, settles_rejected=True),
    Middle("DeadLetters-table", to_table, settles_rejected=True, examples=5),
]
