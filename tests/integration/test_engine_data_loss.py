"""Offsets that are gone, used again, or new, on real Kafka: an error that names them, or a recorded loss; never a silent gap."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumers.brokers.options import KafkaOptions
from consumers.config import Consumer
from consumers.errors import BrokerError, DataLoss
from consumers.processing.ingest import IngestResult, ingest
from consumers.staging.log import StagedCommit, commits
from consumers.staging.positions import committed_positions
from consumers.types import OffsetRange, TopicPartition
from tests.faults.ledger import (
    add_partitions,
    consumer_in,
    delete_records,
    delete_topic,
    new_topic,
    offsets_by_partition,
    produce,
)
from tests.faults.oracle import Findings, audit, staged_digests

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

# A change of the topic is noticed within a second rather than five minutes.
ALERT = {"topic.metadata.refresh.interval.ms": "500"}


def caught_up(consumer: Consumer, kafka: str, **changes: Any) -> IngestResult:
    """Stage what the topic holds now."""
    options = KafkaOptions(kafka, ALERT)
    result = ingest(consumer, options, member="m", stop=threading.Event(), until_caught_up=True, max_seconds=60, **changes)
    assert result.reason == "caught up"
    return result


@contextmanager
def running(
    consumer: Consumer, kafka: str, options: dict[str, str] = ALERT
) -> Iterator[Callable[[Callable[[StagedCommit], bool]], None]]:
    """Ingest in a thread; hands out a function that waits for a commit. Raises at the end what ingestion raised."""
    stop, heard, changed = threading.Event(), list[StagedCommit](), threading.Condition()
    raised: list[BaseException] = []

    def on_commit(commit: StagedCommit) -> None:
        with changed:
            heard.append(commit)
            changed.notify_all()

    def work() -> None:
        try:
            ingest(consumer, KafkaOptions(kafka, options), member="m", stop=stop, on_commit=on_commit)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            with changed:
                raised.append(error)
                changed.notify_all()

    def wait(wanted: Callable[[StagedCommit], bool]) -> None:
        with changed:
            assert changed.wait_for(lambda: any(map(wanted, heard)) or bool(raised), 60), "no such commit"
        if raised:
            raise raised[0]

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        thread.join(60)
    if raised:
        raise raised[0]


def lost_ranges(consumer: Consumer) -> dict[TopicPartition, OffsetRange]:
    """What the table's log says is lost."""
    return {tp: lost for commit in commits(consumer.staged) for tp, lost in commit.lost.items()}


def test_records_taken_by_retention_stop_the_consumer_with_their_offsets(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 2)
    consumer = consumer_in(tmp_path, topic)
    produce(kafka, topic, 200, [0])
    caught_up(consumer, kafka)
    produce(kafka, topic, 300, [0], first=200)
    delete_records(kafka, topic, {0: 350})
    with pytest.raises(DataLoss, match=rf"{topic}/0: .*offsets 200 to 349 \(150 records"):
        caught_up(consumer, kafka)
    assert committed_positions(consumer.staged, consumer.name, topic, 2)[TopicPartition(topic, 0)] == 200


def test_where_the_definition_allows_it_lost_records_are_recorded_and_the_rest_is_staged(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 2)
    consumer = consumer_in(tmp_path, topic, on_data_loss="record")
    ledger = produce(kafka, topic, 200, 2)
    caught_up(consumer, kafka)
    start = offsets_by_partition(ledger)[0]
    later = produce(kafka, topic, 300, 2, first=200)
    delete_records(kafka, topic, {0: start + 50})
    heard: list[StagedCommit] = []
    caught_up(consumer, kafka, on_commit=heard.append)
    left = [record for record in later if record.partition != 0 or record.offset >= start + 50]
    assert audit(consumer, ledger + left, offsets_by_partition(later)) == Findings()
    assert lost_ranges(consumer) == {TopicPartition(topic, 0): OffsetRange(start, start + 50)}
    assert heard[0].lost == lost_ranges(consumer), "the listener hears of the loss"


def test_a_running_member_names_the_offsets_that_retention_takes_before_it(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic)
    produce(kafka, topic, 100, 1)
    caught_up(consumer, kafka)
    produce(kafka, topic, 100, 1, first=100)
    with pytest.raises(DataLoss, match=r"offsets 100 to 149 \(50 records"), overtaken(kafka, topic, consumer) as wait:
        wait(lambda commit: False)


def test_a_running_member_goes_on_past_lost_records_where_the_definition_allows_it(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic, on_data_loss="record")
    ledger = produce(kafka, topic, 100, 1)
    caught_up(consumer, kafka)
    ledger += produce(kafka, topic, 100, 1, first=100)
    with overtaken(kafka, topic, consumer) as wait:
        wait(lambda commit: any(r.end == 200 for r in commit.ranges.values()))
    left = [record for record in ledger if not 100 <= record.offset < 150]
    assert audit(consumer, left, {0: 200}) == Findings()
    assert lost_ranges(consumer) == {TopicPartition(topic, 0): OffsetRange(100, 150)}


@contextmanager
def overtaken(kafka: str, topic: str, consumer: Consumer) -> Iterator[Callable[[Callable[[StagedCommit], bool]], None]]:
    """A member that has just been told where to start when retention takes the first 50 of the records that it will read."""
    from consumers.processing.processor import Processor

    real = Processor.assigned

    def assigned(self: Processor, partitions: Any) -> Any:
        Processor.assigned = real  # type: ignore[method-assign]
        starts = real(self, partitions)
        delete_records(kafka, topic, {0: 150})
        return starts

    Processor.assigned = assigned  # type: ignore[method-assign]
    try:
        with running(consumer, kafka) as wait:
            yield wait
    finally:
        Processor.assigned = real  # type: ignore[method-assign]


def test_a_recreated_topic_stops_the_consumer(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic)
    produce(kafka, topic, 100, 1)
    caught_up(consumer, kafka)
    delete_topic(kafka, topic)
    new_topic(kafka, 1, topic)
    produce(kafka, topic, 300, 1)
    with pytest.raises(DataLoss, match="deleted and created again: what followed offset 100"):
        caught_up(consumer, kafka)


def test_where_the_definition_allows_it_a_recreated_topic_is_read_from_its_beginning(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic, on_data_loss="record")
    old = produce(kafka, topic, 100, 1)
    caught_up(consumer, kafka)
    delete_topic(kafka, topic)
    new_topic(kafka, 1, topic)
    new = produce(kafka, topic, 300, 1, first=1000)
    caught_up(consumer, kafka)
    found = sorted(content for _, content in staged_digests(consumer))
    assert found == sorted(record.digest for record in old + new if not record.malformed)
    assert lost_ranges(consumer) == {TopicPartition(topic, 0): OffsetRange(100, 100)}
    assert committed_positions(consumer.staged, consumer.name, topic, 1) == {TopicPartition(topic, 0): 300}


@pytest.mark.parametrize("options", [ALERT, {}], ids=["metadata often", "metadata as usual"])
def test_a_topic_recreated_under_a_running_member_is_noticed(options: dict[str, str], kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic)
    produce(kafka, topic, 100, 1)
    told = "deleted and created again"
    with (
        pytest.raises((DataLoss, BrokerError), match=f"{told}|topic not available") as ended,
        running(consumer, kafka, options) as wait,
    ):
        wait(lambda commit: any(r.end == 100 for r in commit.ranges.values()))
        delete_topic(kafka, topic)
        new_topic(kafka, 1, topic)
        produce(kafka, topic, 300, 1, first=1000)
        wait(lambda commit: any(r.end == 300 for r in commit.ranges.values()))
        wait(lambda commit: False)
    if ended.type is BrokerError:  # the client had asked for the topic just between the two, so the next member notices
        with pytest.raises(DataLoss, match=told):
            caught_up(consumer, kafka)


def test_a_position_past_the_end_stops_the_consumer_and_is_recorded_where_allowed(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic)
    ledger = produce(kafka, topic, 100, 1)
    caught_up(consumer, kafka)
    push_position(consumer, topic, 150)
    with pytest.raises(DataLoss, match="the log ends at 100, before the committed position 150"):
        caught_up(consumer, kafka)
    allowing = consumer_in(tmp_path, topic, on_data_loss="record")
    ledger += produce(kafka, topic, 20, 1, first=100)
    caught_up(allowing, kafka)
    ledger += produce(kafka, topic, 20, 1, first=120)
    caught_up(allowing, kafka)
    assert lost_ranges(consumer) == {TopicPartition(topic, 0): OffsetRange(120, 150)}
    # What stood between the old position and the cut is not known to the table any more; what came after it is there.
    assert {place for place, _ in staged_digests(consumer)} >= {(0, r.offset) for r in ledger[120:] if not r.malformed}


def push_position(consumer: Consumer, topic: str, offset: int) -> None:
    """Move the table's position, as if the topic's log had been cut short behind it."""
    from consumers.clock import SystemClock
    from consumers.processing.starts import Start
    from consumers.processing.strategies.stage.owner import Owner

    owner = Owner(consumer, "m", SystemClock())
    tp = TopicPartition(topic, 0)
    commit = commits(consumer.staged)[0]
    owner.acquire(owner.positions([tp]), {tp: Start(offset)}, commit.topic_ids[topic])


def test_an_added_partition_is_read_from_its_beginning_although_the_start_is_latest(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic, start="latest")
    produce(kafka, topic, 50, [0])
    caught_up(consumer, kafka)
    with running(consumer, kafka) as wait:
        ledger = produce(kafka, topic, 50, [0], first=50)
        wait(lambda commit: any(r.end == 100 for r in commit.ranges.values()))
        add_partitions(kafka, topic, 2)
        ledger += produce(kafka, topic, 50, [1], first=100)
        wait(lambda commit: TopicPartition(topic, 1) in commit.ranges)
    caught_up(consumer, kafka)
    assert audit(consumer, ledger, {0: 100, 1: 50}) == Findings()


def test_start_latest_is_pinned_before_the_first_batch(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 2)
    consumer = consumer_in(tmp_path, topic, start="latest")
    produce(kafka, topic, 100, 2)
    caught_up(consumer, kafka)
    assert [commit.kind for commit in commits(consumer.staged)] == ["acquire"]
    missed = produce(kafka, topic, 100, 2, first=100)
    caught_up(consumer, kafka)
    assert audit(consumer, missed, offsets_by_partition(missed)) == Findings()
