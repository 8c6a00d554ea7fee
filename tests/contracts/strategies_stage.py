"""Staging into Delta, for the conformance suite: rows with the format `raw`, so that every value is one."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from consumers.config import Consumer, ConsumerConfig
from consumers.processing.context import Context
from consumers.processing.incarnation import Incarnation
from consumers.processing.starts import Start
from consumers.processing.strategies.protocol import Commit
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.strategy import Stage
from consumers.types import TopicPartition
from tests.consumers.parts import contents
from tests.contracts.strategies import PARTITIONS, TOPIC, Ended, Last, Room, Row

_DEFINITION = {
    "topic": TOPIC,
    "format": "raw",
    "schema": {"value": "binary"},
    "window": "day",
    "batch": {"max_records": 5, "max_latency_seconds": 0.2},
}


def _staged(consumer: Consumer) -> Iterable[Row]:
    rows = contents(consumer.staged)
    return zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)


@contextmanager
def stage(room: Room, commit: Commit) -> Iterator[Ended]:
    clock = room.around.clock
    config = ConsumerConfig.model_validate(_DEFINITION)
    consumer = Consumer(name="c", config=config, staged=room.path / "staged", dead_letters=room.path / "dead")
    owner = Owner(consumer, "m", clock)

    def reclaim() -> Mapping[TopicPartition, int]:
        seen = owner.positions(PARTITIONS)
        starts = {tp: Start(stood.offset or 0) for tp, stood in seen.items()}
        owner.acquire(seen, starts, "id")
        return {tp: start.offset for tp, start in starts.items()}

    reclaim()
    context = Context(commit, room.around)
    made = Stage(consumer, owner, context, Incarnation(lambda: "id", clock), lambda partitions: {}, lambda commit: None)
    yield Ended(made, lambda: _staged(consumer), reclaim)


# Each random run makes two tables and many commits, so a few must do.
LASTS = [Last("Stage", stage, takes_rejected=True, real_time=True, examples=8)]
