"""Several topics of a real Kafka into one table: a kill in between, and a topic that appears while a member runs."""

import signal
import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from consumers.brokers.options import KafkaOptions
from consumers.config import Consumer
from consumers.processing import several
from consumers.processing.ingest import ingest
from consumers.staging.local import local_dataset
from consumers.staging.log import StagedCommit
from consumers.staging.positions import committed_positions
from orchestration.checks.staged import no_duplicates, offsets_accounted_for, ranges_join, snapshot
from tests.faults.child import Order
from tests.faults.ledger import SMALL_BATCHES, Sent, consumer_in, new_topic, offsets_by_partition, produce
from tests.faults.process import child

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PARTITIONS = 2
Place = tuple[str, int, int]


class Topics:
    """Topics with a common stem, what was sent to each, and the consumer of all of them."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.kafka = kafka
        self.stem = f"s-{uuid.uuid4().hex[:12]}"
        self.sent: dict[str, list[Sent]] = {}
        # With a static id, members that were killed come back at once.
        one = consumer_in(folder, "one", "several", group=self.stem, batch=SMALL_BATCHES, membership={"instance_id": self.stem})
        like = {"only_topic": None, "topic_pattern": rf"{self.stem}\..*"}
        self.consumer = one.model_copy(update={"config": one.config.model_copy(update=like)})

    def add(self, name: str, count: int) -> None:
        """A new topic with records, some of them malformed."""
        topic = new_topic(self.kafka, PARTITIONS, f"{self.stem}.{name}")
        self.sent[topic] = produce(self.kafka, topic, count, PARTITIONS, seed=len(self.sent))

    def staged(self) -> bool:
        """Whether all positions are at the ends."""
        ends = {topic: offsets_by_partition(sent) for topic, sent in self.sent.items()}
        return ends == {topic: self._positions(topic) for topic in ends}

    def places(self, malformed: bool) -> Counter[Place]:
        """Where the records are that are to be rows, or dead letters."""
        all_ = [(topic, one) for topic, sent in self.sent.items() for one in sent]
        return Counter((topic, one.partition, one.offset) for topic, one in all_ if one.malformed == malformed)

    def _positions(self, topic: str) -> dict[int, int]:
        found = committed_positions(self.consumer.staged, self.consumer.name, topic, PARTITIONS)
        return {tp.partition: offset for tp, offset in found.items()}


def places_in(table: Path) -> Counter[Place]:
    rows = local_dataset(DeltaTable(table)).to_table(columns=["_topic", "_partition", "_offset"]).to_pylist()
    return Counter((row["_topic"], row["_partition"], row["_offset"]) for row in rows)


def problems_of(consumer: Consumer) -> list[str]:
    """What the checks find."""
    shot = snapshot(consumer)
    assert shot is not None
    found = (ranges_join(shot.book), no_duplicates(shot), offsets_accounted_for(shot))
    return [finding.text for finding in found if not finding.passed]


def test_a_kill_and_a_topic_that_appears_leave_every_record_of_every_topic_once(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several, "LOOK_SECONDS", 0.5)
    topics = Topics(kafka, tmp_path)
    topics.add("a", 1_000)
    topics.add("b", 600)
    order = Order(kafka, topics.consumer.model_dump_json(by_alias=True), point="before the staged commit", call=4)
    with child(order, tmp_path / "killed.log") as killed:
        assert killed.end() == -signal.SIGKILL
    assert not topics.staged()
    stop, news = threading.Event(), threading.Condition()
    failed: list[BaseException] = []

    def heard(commit: StagedCommit | None = None) -> None:
        with news:
            news.notify_all()

    def member() -> None:
        try:
            ingest(topics.consumer, KafkaOptions(kafka), member="second", stop=stop, on_commit=heard)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            failed.append(error)
            heard()

    thread = threading.Thread(target=member)
    thread.start()
    try:
        for name in ("", "c"):
            if name:
                topics.add(name, 500)
            with news:
                assert news.wait_for(lambda: bool(failed) or topics.staged(), 60), "not staged in time"
    finally:
        stop.set()
        thread.join(30)
    assert not failed and not thread.is_alive()
    assert places_in(topics.consumer.staged) == topics.places(malformed=False)
    assert places_in(topics.consumer.dead_letters) == topics.places(malformed=True)
    assert problems_of(topics.consumer) == []
