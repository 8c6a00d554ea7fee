"""What a consumer of named partitions, or of all, does on either broker."""

from random import Random

import pytest

from consumers.brokers.memory.partitioner import partition_of
from consumers.errors import BrokerError, DataLoss
from consumers.types import TopicPartition, Watermarks
from tests.contracts.brokers.backends import PATIENCE, Backend, Follower, fill, following, name, new_topic, numbered, until


def test_records_of_a_partition_come_in_order_and_ranges_join(backend: Backend) -> None:
    topic = new_topic(backend, 3)
    producer, chance = backend.writer, Random(1)
    for i in range(2_500):
        producer.send(topic, b"%d" % i, partition=chance.randrange(3))
    producer.flush(PATIENCE)
    with following(backend.reader(topic)) as reader:
        until(lambda: len(reader.rows) == 2_500, reader)
    for partition in range(3):
        rows = [row for row in reader.rows if row["partition"] == partition]
        assert [row["offset"] for row in rows] == list(range(len(rows)))
        assert [int(row["value"]) for row in rows] == sorted(int(row["value"]) for row in rows)
    assert len(reader.values()) == len(set(reader.values()))


def test_a_poll_gives_no_more_records_than_it_was_asked_for(backend: Backend) -> None:
    topic = new_topic(backend, 2)
    fill(backend, topic, numbered(0, 20), 0)
    fill(backend, topic, numbered(0, 20), 1)
    seen = []
    with following(backend.reader(topic)) as reader:
        until(lambda: bool(reader.held), reader)
        reader.seek({TopicPartition(topic, p): 0 for p in (0, 1)})
        while sum(seen) < 40:
            batch = reader.consumer.poll(7, 1.0)
            seen.append(batch.records.num_rows if batch else 0)
    assert max(seen) <= 7


def test_keys_values_headers_and_timestamps_come_back_as_they_were_sent(backend: Backend) -> None:
    topic = new_topic(backend)
    producer = backend.writer
    producer.send(topic, b"value", b"key", headers=[("h", b"1"), ("h", None), ("i", b"")], timestamp_ms=1_356_998_400_123)
    producer.send(topic, None, b"only a key", timestamp_ms=1)
    producer.send(topic, b"only a value", None, timestamp_ms=2)
    producer.send(topic, b"", b"", timestamp_ms=3)
    producer.flush(PATIENCE)
    with following(backend.reader(topic)) as reader:
        until(lambda: len(reader.rows) == 4, reader)
    rows = [(r["key"], r["value"], int(r["timestamp"].timestamp() * 1000 + 0.5)) for r in reader.rows]
    assert rows == [(b"key", b"value", 1_356_998_400_123), (b"only a key", None, 1), (None, b"only a value", 2), (b"", b"", 3)]
    first, *others = [r["headers"] for r in reader.rows]
    assert [(h["key"], h["value"]) for h in first] == [("h", b"1"), ("h", None), ("i", b"")]
    assert others == [None, None, None]


def test_a_record_without_a_timestamp_gets_the_time_of_writing(backend: Backend) -> None:
    topic = new_topic(backend)
    fill(backend, topic, [b"now"])
    with following(backend.reader(topic)) as reader:
        until(lambda: bool(reader.rows), reader)
    assert reader.rows[0]["timestamp"].year >= 2023


def test_a_seek_reads_again_from_there(backend: Backend) -> None:
    topic = new_topic(backend, values=numbered(0, 10))
    with following(backend.reader(topic)) as reader:
        until(lambda: len(reader.rows) == 10, reader)
        reader.seek({TopicPartition(topic, 0): 7})
        until(lambda: len(reader.rows) == 13, reader)
    assert reader.values()[10:] == numbered(7, 10)


def test_a_paused_reader_gets_nothing_until_it_resumes(backend: Backend) -> None:
    topic = new_topic(backend, values=numbered(0, 3))
    with following(backend.reader(topic)) as reader:
        until(lambda: reader.end() == 3, reader)
        reader.consumer.pause()
        fill(backend, topic, numbered(3, 6))
        for _ in range(5):
            assert reader.turn() is None
        reader.consumer.resume()
        until(lambda: reader.end() == 6, reader)
    assert reader.values() == numbered(0, 6)


def test_a_reader_of_named_partitions_reads_only_those(backend: Backend) -> None:
    topic = new_topic(backend, 3, values=[b"not this"])
    fill(backend, topic, [b"this"], 1)
    with following(backend.reader(topic, [1, 2])) as reader:
        until(lambda: bool(reader.rows), reader)
        assert reader.held == {TopicPartition(topic, 1), TopicPartition(topic, 2)}
    assert reader.values() == [b"this"]


def test_a_named_partition_that_is_not_there_is_an_error(backend: Backend) -> None:
    with following(backend.reader(new_topic(backend), [0, 4])) as reader, pytest.raises(BrokerError, match="partition"):
        until(lambda: bool(reader.held), reader)


def test_a_topic_that_is_not_there_is_an_error_at_once(backend: Backend) -> None:
    with pytest.raises(BrokerError, match="topic"):
        backend.reader(name("none"))


def test_a_reader_lets_go_of_its_partitions_when_it_closes(backend: Backend) -> None:
    topic = new_topic(backend)
    with following(backend.reader(topic)) as reader:
        until(lambda: bool(reader.held), reader)
    assert [(how, len(partitions)) for _, how, partitions in reader.told] == [("assigned", 1), ("revoked", 1)]


def test_watermarks_say_what_is_left_and_what_comes_next(backend: Backend) -> None:
    topic = new_topic(backend, 2, values=numbered(0, 5))
    here, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    backend.admin.delete_records({here: 2})
    reader = backend.reader(topic)
    assert reader.watermarks(frozenset({here, other})) == {here: Watermarks(2, 5), other: Watermarks(0, 0)}
    assert backend.admin.watermarks(topic) == {here: Watermarks(2, 5), other: Watermarks(0, 0)}
    reader.close()


def test_high_watermarks_are_those_of_the_last_fetch(backend: Backend) -> None:
    topic = new_topic(backend, values=numbered(0, 5))
    tp = TopicPartition(topic, 0)
    with following(backend.reader(topic)) as reader:
        assert reader.consumer.high_watermarks(frozenset({tp})) == {}
        until(lambda: reader.end() == 5, reader)
        assert reader.consumer.high_watermarks(frozenset({tp})) == {tp: 5}


def test_the_offset_at_a_time_is_the_first_record_that_is_not_older_or_the_end(backend: Backend) -> None:
    topic = new_topic(backend)
    tp = TopicPartition(topic, 0)
    producer = backend.writer
    for stamp in (1_000, 2_000, 2_000, 3_000):
        producer.send(topic, b"", partition=0, timestamp_ms=stamp)
    producer.flush(PATIENCE)
    reader = backend.reader(topic)
    found = [reader.offsets_at(frozenset({tp}), stamp)[tp] for stamp in (0, 1_000, 1_001, 2_000, 2_001, 3_001)]
    assert found == [0, 0, 1, 1, 3, 4]
    reader.close()


def test_a_reader_of_all_partitions_notices_new_ones(backend: Backend) -> None:
    topic = new_topic(backend, values=[b"old"])
    with following(backend.reader(topic)) as reader:
        until(lambda: bool(reader.rows), reader)
        backend.admin.add_partitions(topic, 2)
        producer = backend.producer()  # one that has not heard of the topic before
        producer.send(topic, b"new", partition=1)
        producer.close()
        until(lambda: reader.values() == [b"old", b"new"], reader)
        assert reader.consumer.partitions() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert [len(partitions) for _, how, partitions in reader.told if how == "assigned"] == [1, 1]


def test_a_topic_that_was_made_anew_has_another_id(backend: Backend) -> None:
    topic = new_topic(backend)
    before = backend.admin.topic_id(topic)
    backend.admin.delete_topic(topic)
    backend.admin.create_topic(topic)
    reader = backend.reader(topic)
    assert before != backend.admin.topic_id(topic) == reader.topic_id() != ""
    reader.close()


def test_a_position_that_is_gone_makes_the_listener_look_again(backend: Backend) -> None:
    topic = new_topic(backend, values=numbered(0, 10))
    tp = TopicPartition(topic, 0)
    with following(backend.reader(topic)) as reader:
        until(lambda: reader.end() == 10, reader)
        backend.admin.delete_records({tp: 6})
        reader.seek({tp: 2})
        until(lambda: len(reader.rows) == 14, reader)
    assert reader.values()[10:] == numbered(6, 10)
    assert [how for _, how, _ in reader.told] == ["assigned", "revoked", "assigned", "revoked"]


def test_a_position_that_stays_gone_is_data_loss(backend: Backend) -> None:
    topic = new_topic(backend, values=numbered(0, 5))
    reader = Follower(backend.reader(topic))
    reader.starts = lambda partitions: dict.fromkeys(partitions, 1_000)
    with pytest.raises(DataLoss, match="offset 1000 is not in the topic any more"):
        until(lambda: bool(reader.rows), reader)
    reader.consumer.close()


def test_a_topic_that_does_not_exist_is_said_to_be_missing(backend: Backend) -> None:
    with pytest.raises(BrokerError, match=r"topic 'nope' does not exist\. .*Create it, or mend the name\.$"):
        backend.admin.partitions("nope")


def test_a_key_has_the_same_partition_on_every_broker(backend: Backend) -> None:
    topic = new_topic(backend, 7)
    producer = backend.writer
    keys = [b"k%d" % i * (i % 9 + 1) for i in range(100)]
    for key in keys:
        producer.send(topic, key, key)
    producer.flush(PATIENCE)
    with following(backend.reader(topic)) as reader:
        until(lambda: len(reader.rows) == len(keys), reader)
    assert {row["key"]: row["partition"] for row in reader.rows} == {key: partition_of(key, 7) for key in keys}
