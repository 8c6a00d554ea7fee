"""Members come and go under load, on a cluster of three brokers, under each protocol that a group can speak."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka as ck
import pyarrow as pa
import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.config import Consumer
from consumers.membership import GroupSettings
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.staging.log import commits
from consumers.types import RecordBatch
from tests.faults.ledger import (
    FIRST_MS,
    Sent,
    consumer_in,
    digest,
    malformed_value,
    new_topic,
    offsets_by_partition,
    produce,
    value_of,
)
from tests.faults.oracle import Findings, audit
from tests.kafka_fixture import kafka as own_kafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PARTITIONS = 16
WAVES = 5
TOGETHER = 6
EAGER = GroupSettings(protocol="eager", assignor="roundrobin", session_seconds=6, heartbeat_seconds=0.5)
COOPERATIVE = GroupSettings(protocol="cooperative", session_seconds=6, heartbeat_seconds=0.5)
CONSUMER = GroupSettings(protocol="consumer")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of three."""
    with own_kafka(tmp_path_factory.mktemp("three"), brokers=3) as bootstrap:
        yield bootstrap


class Member:
    """A member of the group in a thread."""

    def __init__(
        self,
        consumer: Consumer,
        bootstrap: str,
        name: str,
        settings: GroupSettings,
        kind: type[KafkaGroupMember] = KafkaGroupMember,
        caught_up: bool = False,
    ) -> None:
        self.name = name
        self._committed, self._stop, self._abort = threading.Event(), threading.Event(), threading.Event()
        self._raised: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, args=(consumer, bootstrap, settings, kind, caught_up), name=name)
        self._thread.start()

    def has_committed(self, seconds: float = 60.0) -> bool:
        """Wait for its first commit."""
        return self._committed.wait(seconds)

    def leave(self, abort: bool = False) -> None:
        """Tell it to end; with `abort`, and leave its work in flight to others."""
        if abort:
            self._abort.set()
        self._stop.set()

    def end(self, seconds: float = 60.0) -> None:
        """Wait for its end; raises what it raised."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self._raised:
            raise self._raised[0]

    def _work(
        self, consumer: Consumer, bootstrap: str, settings: GroupSettings, kind: type[KafkaGroupMember], caught_up: bool
    ) -> None:
        try:
            broker = kind(KafkaOptions(bootstrap), consumer.config.topic, consumer.group, self.name, settings=settings)
            stage_from(
                broker,
                consumer,
                self.name,
                self._stop,
                Limits(until_caught_up=caught_up, max_seconds=200),
                lambda _: self._committed.set(),
                Surroundings(),
                self._abort,
            )
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self._raised.append(error)
            self._committed.set()


class Load:
    """Produces a little all the time, until the block ends. `ledger` is what the cluster acknowledged.

    No poll is without records then, so that rebalances come in the middle of what is being collected.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.ledger: list[Sent] = []
        self._topic = topic
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 2})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            for partition in range(PARTITIONS):
                self._send(number, partition)
                number += 1
            self._producer.poll(0)

    def _send(self, number: int, partition: int) -> None:
        bad = number % 20 == 7
        value = malformed_value(number) if bad else value_of(number, "text")

        def note(error: ck.KafkaError | None, message: ck.Message) -> None:
            assert error is None
            self.ledger.append(Sent(partition, message.offset() or 0, digest(value), bad))

        self._producer.produce(self._topic, value, partition=partition, timestamp=FIRST_MS, on_delivery=note)


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER], ids=lambda settings: settings.protocol)
def test_thirty_joins_and_leaves_lose_nothing_and_repeat_nothing(brokers: str, tmp_path: Path, settings: GroupSettings) -> None:
    topic = f"crowd-{settings.protocol}"
    admin = KafkaAdmin(KafkaOptions(brokers))
    admin.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    consumer = consumer_in(tmp_path, topic, batch={"max_latency_seconds": 0.5})
    with ExitStack() as stack:
        load = stack.enter_context(Load(brokers, topic))
        everyone = [Member(consumer, brokers, f"steady-{n}", settings) for n in range(2)]
        stack.callback(lambda: list(map(Member.leave, everyone)))
        for wave in range(WAVES):
            came = [Member(consumer, brokers, f"wave-{wave}-{n}", settings) for n in range(TOGETHER)]
            everyone += came
            for one in came:
                assert one.has_committed(), f"{one.name} came and never had anything to commit"
            # They go while those of the next wave come; every third leaves its work undone.
            for number, one in enumerate(came):
                one.leave(abort=number % 3 == 0)
    for one in everyone:
        one.end()
    Member(consumer, brokers, "last", settings, caught_up=True).end()
    found = audit(consumer, load.ledger, offsets_by_partition(load.ledger), admin.group_offsets(consumer.group, topic))
    assert found == Findings()
    wrote = {commit.member for commit in commits(consumer.staged) if commit.kind == "batch"}
    assert len(wrote - {"last"}) == 2 + WAVES * TOGETHER


class Skipping(KafkaGroupMember):
    """Loses the first record of every batch, but not its offset."""

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        batch = super().poll(max_records, timeout)
        return batch and RecordBatch(batch.topic, batch.records.slice(1), batch.ranges)


class Repeating(KafkaGroupMember):
    """Has the first record of every batch twice."""

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        batch = super().poll(max_records, timeout)
        if batch is None:
            return None
        twice = pa.concat_batches([batch.records.slice(0, 1), batch.records])
        return RecordBatch(batch.topic, twice, batch.ranges)


@pytest.mark.parametrize(("kind", "finding"), [(Skipping, "lost"), (Repeating, "twice")])
def test_a_member_that_skips_or_repeats_a_record_is_found_out(
    brokers: str, tmp_path: Path, kind: type[KafkaGroupMember], finding: str
) -> None:
    topic = new_topic(brokers, 2)
    ledger = produce(brokers, topic, 100, 2)
    consumer = consumer_in(tmp_path, topic)
    Member(consumer, brokers, "broken", COOPERATIVE, kind, caught_up=True).end()
    assert getattr(audit(consumer, ledger, offsets_by_partition(ledger)), finding)
