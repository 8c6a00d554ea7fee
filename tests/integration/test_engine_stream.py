"""What real Kafka does to a running member: rebalances, transactions, slow tables, stops, a broker that dies."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import psutil
import pytest
from deltalake import DeltaTable

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.processing import ingest as ingesting
from consumers.processing import processor
from consumers.processing.ingest import IngestResult, ingest
from consumers.staging.log import StagedCommit, commits
from consumers.staging.positions import committed_positions
from consumers.staging.staged import StagedTable
from orchestration.local import cluster, process
from tests.faults.child import Order
from tests.faults.ledger import (
    FIRST_MS,
    SMALL_BATCHES,
    Sent,
    consumer_in,
    digest,
    new_topic,
    offsets_by_partition,
    produce,
    value_of,
)
from tests.faults.oracle import Findings, audit
from tests.faults.process import child
from tests.kafka_fixture import kafka as own_kafka
from tests.kafka_fixture import settings_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]


def caught_up(consumer: Consumer, kafka: str) -> IngestResult:
    """Stage what the topic holds now."""
    result = ingest(consumer, KafkaOptions(kafka), member="m", stop=threading.Event(), until_caught_up=True, max_seconds=60)
    assert result.reason == "caught up"
    return result


class Heard:
    """Commits that a member told of, and a way to wait for more."""

    def __init__(self) -> None:
        self.commits: list[StagedCommit] = []
        self.raised: list[BaseException] = []
        self.result: IngestResult | None = None
        self.changed = threading.Condition()

    def add(self, commit: StagedCommit) -> None:
        with self.changed:
            self.commits.append(commit)
            self.changed.notify_all()

    def wait(self, wanted: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until it is so, looked at after each commit."""
        with self.changed:
            assert self.changed.wait_for(lambda: wanted() or bool(self.raised), seconds), "no such commit in time"
        if self.raised:
            raise self.raised[0]

    @property
    def rows(self) -> int:
        """Rows and dead letters so far."""
        return sum(commit.rows + commit.dead_letters for commit in self.commits)


@contextmanager
def member(consumer: Consumer, kafka: str, name: str = "m", options: dict[str, str] | None = None) -> Iterator[Heard]:
    """A member in a thread, stopped at the end; what it raised is raised there."""
    stop, heard = threading.Event(), Heard()

    def work() -> None:
        try:
            heard.result = ingest(consumer, KafkaOptions(kafka, options or {}), member=name, stop=stop, on_commit=heard.add)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            heard.raised.append(error)
            with heard.changed:
                heard.changed.notify_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield heard
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    if heard.raised:
        raise heard.raised[0]


def batches_of(consumer: Consumer, name: str) -> int:
    """How many batches a member committed."""
    return sum(commit.kind == "batch" and commit.member == name for commit in commits(consumer.staged))


def test_members_that_join_and_leave_lose_nothing_and_repeat_nothing(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 4)
    consumer = consumer_in(tmp_path, topic, batch=SMALL_BATCHES)
    ledger = produce(kafka, topic, 4_000, 4)
    order = Order(kafka, consumer.model_dump_json(by_alias=True), until_caught_up=False)
    names = ("first", "second", "third")
    with child(replace(order, member="first"), tmp_path / "first.log") as first:
        first.wait_for("committed")
        with (
            child(replace(order, member="second"), tmp_path / "second.log") as second,
            child(replace(order, member="third"), tmp_path / "third.log") as third,
        ):
            # Each has partitions of its own once it commits what is produced after it came.
            while not (batches_of(consumer, "second") and batches_of(consumer, "third")):
                ledger += produce(kafka, topic, 400, 4, first=len(ledger))
                assert len(ledger) < 100_000, "the new members never got a partition"
            for leaving in (second, third):
                leaving.signal(signal.SIGTERM)
                assert leaving.end() == 0, leaving.said[-2:]
        ledger += produce(kafka, topic, 1_000, 4, first=len(ledger))
        first.signal(signal.SIGTERM)
        assert first.end() == 0, first.said[-2:]
    caught_up(consumer, kafka)
    assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()
    assert all(batches_of(consumer, name) for name in names)


def test_aborted_transactions_are_skipped_and_positions_reach_the_end(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 2)
    consumer = consumer_in(tmp_path, topic)
    kept: list[Sent] = []
    producer = ck.Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(20)
    for number in range(20):
        aborted = number % 3 == 2 or number == 19
        sent: list[Sent] = []
        producer.begin_transaction()
        for i in range(10):
            value = value_of(number * 10 + i, "t")

            def note(error: Any, message: ck.Message, value: bytes = value, sent: list[Sent] = sent) -> None:
                assert error is None
                sent.append(Sent(message.partition() or 0, message.offset() or 0, digest(value), False))

            producer.produce(topic, value, partition=number % 2, timestamp=FIRST_MS, on_delivery=note)
        producer.flush(20)
        if aborted:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            kept += sent
    caught_up(consumer, kafka)
    # 10 transactions a partition, each 10 records and a marker.
    assert audit(consumer, kept, {0: 110, 1: 110}) == Findings()
    assert sum(commit.skipped for commit in commits(consumer.staged)) == 220 - len(kept)


def test_an_open_transaction_is_not_waited_for(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic)
    ledger = produce(kafka, topic, 50, 1)
    producer = ck.Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, value_of(50, "t"), timestamp=FIRST_MS)
    producer.flush(20)
    caught_up(consumer, kafka)
    assert audit(consumer, ledger, {0: 50}) == Findings()
    producer.commit_transaction(20)
    caught_up(consumer, kafka)
    ledger.append(Sent(0, 50, digest(value_of(50, "t")), False))
    assert audit(consumer, ledger, {0: 52}) == Findings()


def test_a_slow_table_pauses_the_member_which_keeps_its_partitions(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka, 2)
    tiny = {"max_records": 200, "max_bytes": 16_384, "max_latency_seconds": 0.2}
    consumer = consumer_in(tmp_path, topic, batch=tiny)
    ledger = produce(kafka, topic, 3_000, 2)
    pauses: list[int] = []
    lost: list[object] = []
    wait, real, pause = threading.Event(), StagedTable.commit, KafkaGroupMember.pause

    def slow(self: StagedTable, *args: Any) -> StagedCommit:
        wait.wait(0.0 if len(pauses) > 3 else 7.5)  # longer than the session, and than the time allowed between polls
        return real(self, *args)

    def noted(self: KafkaGroupMember) -> None:
        pauses.append(1)
        if len(pauses) > 3:
            wait.set()
        pause(self)

    monkeypatch.setattr(ingesting, "POLL_RECORDS", 200)
    monkeypatch.setattr(StagedTable, "commit", slow)
    monkeypatch.setattr(KafkaGroupMember, "pause", noted)
    monkeypatch.setattr(KafkaGroupMember, "_on_lost", lambda self, partitions: lost.append(partitions))
    impatient = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500", "max.poll.interval.ms": "6000"}
    with member(consumer, kafka, options=impatient) as heard:
        heard.wait(lambda: heard.rows == len(ledger))
    assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()
    assert len(pauses) > 3
    assert lost == []
    assert [commit.kind for commit in commits(consumer.staged)].count("acquire") == 1


def test_a_stop_in_the_middle_ends_soon_and_the_next_run_goes_on(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "POLL_RECORDS", 200)
    topic = new_topic(kafka, 2)
    consumer = consumer_in(tmp_path, topic, batch=SMALL_BATCHES)
    ledger = produce(kafka, topic, 8_000, 2)
    clock = SystemClock()
    with member(consumer, kafka) as heard:
        heard.wait(lambda: len(heard.commits) > 1)
        asked = clock.monotonic()
    assert clock.monotonic() - asked < 10
    assert heard.result is not None
    assert heard.result.reason == "stopped"
    assert heard.result.rows + heard.result.dead_letters < len(ledger)
    caught_up(consumer, kafka)
    assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()


def test_keys_headers_timestamps_and_tombstones_arrive_as_they_were_sent(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic)
    headers: list[tuple[str, str | bytes | None]] = [("a", b"\x00\xff"), ("a", b"again"), ("empty", b""), ("none", None)]
    producer = ck.Producer({"bootstrap.servers": kafka})
    producer.produce(topic, value_of(1, "x"), b"\x00key", timestamp=FIRST_MS + 1, headers=headers)
    producer.produce(topic, None, b"gone", timestamp=FIRST_MS + 2)
    producer.produce(topic, value_of(2, "y"), None, timestamp=FIRST_MS + 3)
    producer.produce(topic, b"{", b"bad", timestamp=FIRST_MS + 4, headers=headers)
    producer.produce(topic, b"", b"empty", timestamp=FIRST_MS + 5)
    assert producer.flush(20) == 0
    caught_up(consumer, kafka)
    rows = sorted(DeltaTable(consumer.staged).to_pyarrow_table().to_pylist(), key=lambda row: row["_offset"])
    dead = sorted(DeltaTable(consumer.dead_letters).to_pyarrow_table().to_pylist(), key=lambda row: row["_offset"])
    kept = [{"key": key, "value": value} for key, value in headers]
    stamps = [row["_timestamp"].timestamp() * 1000 for row in rows + dead]
    assert stamps == [FIRST_MS + 1, FIRST_MS + 2, FIRST_MS + 3, FIRST_MS + 4, FIRST_MS + 5]
    assert [(row["id"], row["_key"], row["_tombstone"]) for row in rows] == [
        (1, b"\x00key", False),
        (None, b"gone", True),
        (2, None, False),
    ]
    assert [row["_headers"] for row in rows] == [kept, None, None]
    assert [(row["_value"], row["_key"], row["_headers"]) for row in dead] == [
        (b"{", b"bad", kept),
        (b"", b"empty", None),
    ]


def test_a_broker_that_is_killed_and_comes_back_interrupts_nothing(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with own_kafka(tmp_path) as kafka:
        topic = new_topic(kafka, 2)
        consumer = consumer_in(tmp_path, topic)
        ledger = produce(kafka, topic, 1_000, 2)
        with member(consumer, kafka, options={"session.timeout.ms": "6000"}) as heard:
            heard.wait(lambda: heard.rows == len(ledger))
            broker = process.find(tmp_path / "kafka" / "broker-1")
            assert broker is not None
            broker.send_signal(signal.SIGKILL)
            psutil.wait_procs([broker], timeout=20)
            cluster.up(settings)
            ledger += produce(kafka, topic, 1_000, 2, first=1_000)
            heard.wait(lambda: heard.rows == len(ledger))
        assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()


def test_group_offsets_that_a_kill_left_behind_are_committed_by_the_next_member(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, 2)
    consumer = consumer_in(tmp_path, topic)
    ends = offsets_by_partition(produce(kafka, topic, 100, 2))
    static = {"group.instance.id": "only"}
    order = Order(kafka, consumer.model_dump_json(by_alias=True), options=static, point="after the staged commit")
    admin = KafkaAdmin(KafkaOptions(kafka))
    with child(replace(order, poll_records=1_000), tmp_path / "killed.log") as killed:
        assert killed.end() == -signal.SIGKILL
    positions = committed_positions(consumer.staged, consumer.name, topic, 2)
    assert admin.group_offsets(consumer.group, topic) != positions
    with child(replace(order, point=None), tmp_path / "next.log") as following:
        assert following.end() == 0, following.said
    assert {tp.partition: offset for tp, offset in admin.group_offsets(consumer.group, topic).items()} == ends


def test_a_member_that_the_group_has_no_partition_for_ends(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(kafka, 1)
    consumer = consumer_in(tmp_path, topic)
    ledger = produce(kafka, topic, 100, 1)
    with member(consumer, kafka) as heard:
        heard.wait(lambda: heard.rows == len(ledger))
        monkeypatch.setattr(processor, "_ALONE_SECONDS", 1.0)
        options = KafkaOptions(kafka)
        spare = ingest(consumer, options, member="spare", stop=threading.Event(), until_caught_up=True, max_seconds=40)
    assert spare.reason == "no partitions were assigned"


def test_after_a_kill_the_next_member_waits_for_the_partitions(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_ALONE_SECONDS", 1.0)
    topic = new_topic(kafka, 2)
    consumer = consumer_in(tmp_path, topic, batch=SMALL_BATCHES)
    ledger = produce(kafka, topic, 2_000, 2)
    session = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500"}
    order = Order(kafka, consumer.model_dump_json(by_alias=True), options=session, point="after the staged commit")
    with child(order, tmp_path / "killed.log") as killed:
        assert killed.end() == -signal.SIGKILL
    assert caught_up(consumer, kafka).rows > 0
    assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()
