"""Positions moved under a running member of a real Kafka group: it reads again what it is to, and nothing is twice."""

import threading
from pathlib import Path
from random import Random

import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.processing import processor
from consumers.processing.ingest import ingest
from consumers.processing.move import Mover
from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition
from tests.consumers.parts import offsets
from tests.faults.ledger import Sent, consumer_in, new_topic, offsets_by_partition, produce

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]


class Running:
    """A member in a thread."""

    def __init__(self, consumer: Consumer, kafka: str) -> None:
        self.raised: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(consumer, kafka))
        self._thread.start()

    def _work(self, consumer: Consumer, kafka: str) -> None:
        try:
            ingest(consumer, KafkaOptions(kafka), member="m", stop=self._stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self.raised.append(error)

    def until(self, consumer: Consumer, ends: dict[int, int], after: int, clock: Clock) -> None:
        """Wait until a commit after version `after` has brought every partition to its end."""
        deadline = clock.monotonic() + 90
        topic = consumer.config.topic
        while committed_positions(consumer.staged, consumer.name, topic, 2) != {
            TopicPartition(topic, p): end for p, end in ends.items()
        } or not any(commit.kind == "batch" for commit in commits(consumer.staged, after)):
            assert not self.raised, self.raised
            assert clock.monotonic() < deadline, "the positions were not reached in time"
            clock.sleep(0.05)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.raised:
            raise self.raised[0]


def places(consumer: Consumer) -> dict[tuple[int, int], int]:
    found = offsets(consumer.staged) + offsets(consumer.dead_letters)
    return {(partition, offset): times for (_, partition, offset), times in found.items()}


def once(sent: list[Sent]) -> dict[tuple[int, int], int]:
    return {(record.partition, record.offset): 1 for record in sent}


def test_a_running_member_reads_again_what_was_moved_back_and_nothing_is_twice(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_TELL_SECONDS", 1.0)  # how soon a member that is caught up looks
    topic, clock = new_topic(kafka, 2), SystemClock()
    consumer = consumer_in(tmp_path, topic)
    sent = produce(kafka, topic, 400, 2)
    admin = KafkaAdmin(KafkaOptions(kafka), timeout=10.0)
    mover = Mover(consumer, admin, clock, Random(1))
    member = Running(consumer, kafka)
    try:
        ends = offsets_by_partition(sent)
        member.until(consumer, ends, -1, clock)
        moved = mover.move({0: 5, 1: 50}, by="ann", why="a test", member="run")
        assert moved.commit is not None
        assert not moved.group_told
        member.until(consumer, ends, moved.commit.version, clock)
        assert places(consumer) == once(sent)
        back = mover.move("earliest", by="ann", why="with records on their way", member="run")
        assert back.commit is not None
        sent += produce(kafka, topic, 100, 2, first=400)
        member.until(consumer, offsets_by_partition(sent), back.commit.version, clock)
    finally:
        member.end()
    assert places(consumer) == once(sent)
    positions = {TopicPartition(topic, p): end for p, end in offsets_by_partition(sent).items()}
    assert admin.group_offsets(consumer.group, topic) == positions
    assert mover.move({0: 7}, by="ann", why="nobody is there", member="run").group_told
    assert admin.group_offsets(consumer.group, topic)[TopicPartition(topic, 0)] == 7
