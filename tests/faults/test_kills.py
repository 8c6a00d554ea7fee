"""SIGKILL at every point between a poll and the group commit, with real Kafka: nothing is lost, nothing is there twice."""

import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from tests.faults.child import POINTS, Order
from tests.faults.ledger import SMALL_BATCHES, consumer_in, new_topic, offsets_by_partition, produce
from tests.faults.oracle import Findings, audit, group_ahead
from tests.faults.process import child

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.timeout(240)]

KILLS = 10
RECORDS = 5_000
PARTITIONS = 3
SEED = 20130101

# A member that comes back under its old name gets its partitions back at once, without waiting for the session to end.
STATIC = {"session.timeout.ms": "30000", "group.instance.id": "only"}
AT_EVERY_START = ("between the takeovers of the two tables", "after the takeover")


def plan(point: str, seed: int) -> list[tuple[str, int]]:
    """The point and the call of each kill. A takeover comes first in a process, so kills there alternate with progress."""
    chance = random.Random(f"{seed} {point}")
    if point not in AT_EVERY_START:
        return [(point, chance.randint(1, 3)) for _ in range(KILLS)]
    kills = [[("after the dead-letter commit", chance.randint(1, 2)), (point, 1), (point, 1)] for _ in range(KILLS // 2)]
    return [kill for group in kills for kill in group]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_loses_nothing_and_repeats_nothing(point: str, kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, PARTITIONS)
    ledger = produce(kafka, topic, RECORDS, PARTITIONS)
    consumer = consumer_in(tmp_path, topic, batch=SMALL_BATCHES)
    order = Order(kafka, consumer.model_dump_json(by_alias=True), options=STATIC)
    admin = KafkaAdmin(KafkaOptions(kafka))
    kills = plan(point, SEED)
    print(f"seed {SEED}: {kills}")  # noqa: T201 - pytest shows it beside a failure
    for number, (where, call) in enumerate(kills):
        with child(replace(order, point=where, call=call), tmp_path / "child.log") as victim:
            assert victim.end() == -signal.SIGKILL, f"kill {number} at call {call} did not happen: {victim.said}"
            assert victim.said[-1].startswith("fired")
        assert group_ahead(consumer, admin.group_offsets(consumer.group, topic)) == ()
    with child(order, tmp_path / "child.log") as last:
        assert last.end() == 0, last.said
    group = admin.group_offsets(consumer.group, topic)
    ends = offsets_by_partition(ledger)
    assert audit(consumer, ledger, ends, group) == Findings()
    assert {tp.partition: offset for tp, offset in group.items()} == ends
