"""Producers and the strategies that produce, on real Kafka: transactions, a killed producer, partitioners."""

import subprocess
import sys
import uuid
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.brokers.partitioners import Partitioner
from consumers.brokers.producer import KafkaProducer
from consumers.brokers.protocol import BrokerConsumer, Delivery
from consumers.brokers.serializers import TypedTopic, as_json, as_text
from consumers.brokers.transactions import KafkaTransactionalProducer
from consumers.errors import BrokerError, OwnershipLost
from consumers.processing.context import Build
from consumers.processing.group_positions import GroupPositions
from consumers.processing.processor import Limits
from consumers.processing.run import run
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.commit_positions import CommitPositions
from consumers.processing.strategies.filter import Filter
from consumers.processing.strategies.map import Map
from consumers.processing.strategies.produce import Produce
from consumers.processing.strategies.produce_in_transaction import ProduceInTransaction
from consumers.processing.subscription import Subscription
from tests.committed import committed, values
from tests.faults.ledger import new_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

CAUGHT_UP = Limits(until_caught_up=True, max_seconds=90)
JAVA = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
"""Keys and what `org.apache.kafka.common.utils.Utils.murmur2` makes of them, from its own tests."""


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4()}"


def work(kafka: str, source: str, group: str, build: Callable[[BrokerConsumer], Build]) -> None:
    """Run the engine until it has caught up."""
    member = KafkaGroupMember(KafkaOptions(kafka), source, group, "m")
    assert run(Subscription("c", source), member, GroupPositions(member), build(member), limits=CAUGHT_UP) == "caught up"
    member.close()


def odd(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.equal(pc.binary_length(batch["value"]), 3)


def shouted(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.replace_substring(batch["value"], "r", "R"), batch["key"]], ["value", "key"])


def in_transactions(target: str, producer: KafkaTransactionalProducer) -> Callable[[BrokerConsumer], Build]:
    def with_member(member: BrokerConsumer) -> Build:
        size, metadata = UpTo(records=30, seconds=0.5), member.group_metadata
        return lambda context: Filter(odd, Map(shouted, ProduceInTransaction(producer, target, metadata, context.commit, size)))

    return with_member


def values_alone(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["value"])


def at_least_once(target: str, producer: KafkaProducer) -> Build:
    return lambda context: Map(values_alone, Produce(producer, target, CommitPositions(context.commit)))


def test_consume_transform_produce_is_exactly_once_also_past_an_aborted_range(kafka: str) -> None:
    source, target, group, name = new_topic(kafka, 1), new_topic(kafka, 2), unique("g"), unique("x")
    writer = KafkaTransactionalProducer(KafkaOptions(kafka), unique("w"))
    for numbers, commit in ((range(20, 60), True), (range(60, 80), False), (range(80, 120), True)):
        writer.begin()
        for number in numbers:
            writer.send(source, b"r%d" % number, b"%d" % number)
        writer.flush(30)
        writer.commit_transaction() if commit else writer.abort_transaction()
    writer.close()
    for _ in range(2):  # the second run finds nothing to do
        with KafkaTransactionalProducer(KafkaOptions(kafka), name) as producer:
            work(kafka, source, group, in_transactions(target, producer))
    assert sorted(values(kafka, target)) == [b"R%d" % number for number in [*range(20, 60), *range(80, 100)]]


def test_positions_pass_what_was_produced_and_a_second_run_goes_on_from_there(kafka: str) -> None:
    source, target, group = new_topic(kafka, 2), new_topic(kafka, 2), unique("g")
    with KafkaProducer(KafkaOptions(kafka)) as producer:
        for first in (0, 5_000):
            rows = {"value": [b"%05d" % number for number in range(first, first + 5_000)]}
            assert producer.send_batch(source, pa.RecordBatch.from_pydict(rows)).failed == []
            assert producer.flush(60) == 0
            work(kafka, source, group, lambda _member: at_least_once(target, producer))
    assert sorted(values(kafka, target)) == [b"%05d" % number for number in range(10_000)]


def test_what_a_killed_producer_left_open_is_aborted_by_the_next_one_with_its_id(kafka: str) -> None:
    topic, name = new_topic(kafka, 1), unique("x")
    command = [sys.executable, "-m", "tests.integration.producing_child", kafka, topic, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"sent\n"
        child.kill()
    with KafkaProducer(KafkaOptions(kafka)) as other:
        other.send(topic, b"waits behind it", partition=0)
    assert values(kafka, topic) == []
    with KafkaTransactionalProducer(KafkaOptions(kafka), name) as producer:
        producer.begin()
        producer.send(topic, b"again", partition=0)
        producer.commit_transaction()
    assert values(kafka, topic) == [b"waits behind it", b"again"]


def places(kafka: str, topic: str, keys: list[bytes], partitioner: Partitioner) -> dict[bytes, int]:
    """Where a partitioner puts keys."""
    found: dict[bytes, int] = {}
    with KafkaProducer(KafkaOptions(kafka), partitioner=partitioner) as producer:
        for key in keys:

            def told(delivery: Delivery, key: bytes = key) -> None:
                assert delivery.error is None
                found[key] = delivery.partition

            producer.send(topic, b"x", key, on_delivery=told)
    return found


def test_keys_go_where_javas_clients_put_them(kafka: str) -> None:
    topic = new_topic(kafka, 7)
    expected = {key: (number & 0x7FFFFFFF) % 7 for key, number in JAVA.items()}
    assert places(kafka, topic, list(JAVA), "murmur2_random") == expected


def test_a_function_may_be_the_partitioner_of_single_records_and_of_batches(kafka: str) -> None:
    topic = new_topic(kafka, 3)
    by_length = lambda key, count: len(key or b"") % count  # noqa: E731
    assert places(kafka, topic, [b"a", b"bb", b"ccc"], by_length) == {b"a": 1, b"bb": 2, b"ccc": 0}
    with KafkaProducer(KafkaOptions(kafka), partitioner=by_length) as producer:
        receipt = producer.send_batch(topic, pa.RecordBatch.from_pydict({"value": [b"v", b"w"], "key": [b"a", None]}))
    assert (receipt.waiting, receipt.failed) == (0, [])
    found = committed(kafka, topic)
    assert {(row["value"], row["partition"]) for row in found.to_pylist() if row["value"] != b"x"} == {(b"v", 1), (b"w", 0)}


def test_typed_values_are_serialized_on_their_way(kafka: str) -> None:
    topic = new_topic(kafka, 1)
    with KafkaProducer(KafkaOptions(kafka)) as producer:
        typed: TypedTopic[str, dict[str, int]] = TypedTopic(producer, topic, as_json, as_text)
        typed.send({"a": 1}, "k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
        typed.send_all([{"a": 2}, {"a": 3}], ["l", "m"])
    rows = committed(kafka, topic).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b'{"a":1}'), (b"l", b'{"a":2}'), (b"m", b'{"a":3}')]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert int(rows[0]["timestamp"].timestamp() * 1000) == 1_700_000_000_000


def test_a_producer_that_a_newer_one_has_fenced_says_so_while_it_flushes_and_from_then_on(kafka: str) -> None:
    topic, name = new_topic(kafka, 1), unique("x")
    older = KafkaTransactionalProducer(KafkaOptions(kafka), name)
    older.begin()
    older.send(topic, b"before")
    older.flush(30)
    with KafkaTransactionalProducer(KafkaOptions(kafka), name) as newer:
        newer.begin()
        older.send(topic, b"late")
        for _ in range(2):
            with pytest.raises(OwnershipLost, match="a newer producer with the same id has taken over"):
                older.flush(30)
        with pytest.raises(BrokerError, match="Give each process a transactional id of its own"):
            older.begin()
        newer.commit_transaction()
    older.abandon()


def test_a_record_for_a_topic_or_partition_that_is_not_there_says_what_to_do(kafka: str) -> None:
    topic = new_topic(kafka, 1)
    producer = KafkaProducer(KafkaOptions(kafka, {"topic.metadata.propagation.max.ms": "100"}))
    told: list[Delivery] = []
    producer.send(unique("missing"), b"x", on_delivery=told.append)
    producer.send(topic, b"x", partition=7, on_delivery=told.append)
    assert producer.flush(30) == 0
    missing, narrow = sorted(str(delivery.error) for delivery in told)
    assert "the topic does not exist; create it" in missing
    assert "the topic has fewer partitions" in narrow
    producer.abandon()
