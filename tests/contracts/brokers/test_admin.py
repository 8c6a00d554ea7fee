"""What an admin tells of a group, a time and open transactions, and may order, on either broker."""

import pytest

from consumers.types import TopicPartition, Watermarks
from tests.contracts.brokers.backends import PATIENCE, Backend, fill, following, name, new_topic, numbered, quick, until


def test_offsets_of_a_group_without_members_can_be_set_forth_and_back(backend: Backend) -> None:
    topic, group = new_topic(backend, 2, numbered(0, 5)), name("group")
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert backend.admin.set_group_offsets(group, {zero: 4})
    assert backend.admin.group_offsets(group, topic) == {zero: 4}
    assert backend.admin.set_group_offsets(group, {zero: 1, one: 0})
    assert backend.admin.group_offsets(group, topic) == {zero: 1, one: 0}


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_offsets_of_a_group_with_members_are_left_to_them(backend: Backend, protocol: str) -> None:
    topic, group = new_topic(backend, 1, numbered(0, 5)), name("group")
    tp = TopicPartition(topic, 0)
    with following(backend.member(topic, group, quick(protocol))) as member:
        until(lambda: bool(member.held), member)
        member.consumer.commit({tp: 3}, wait=True)
        assert not backend.admin.set_group_offsets(group, {tp: 1})
        assert backend.admin.group_offsets(group, topic) == {tp: 3}


def test_a_group_whose_members_have_left_takes_offsets_again(backend: Backend) -> None:
    topic, group = new_topic(backend, 1, numbered(0, 5)), name("group")
    tp = TopicPartition(topic, 0)
    with following(backend.member(topic, group, quick())) as member:
        until(lambda: bool(member.held), member)
        member.consumer.commit({tp: 3}, wait=True)
    until(lambda: backend.admin.set_group_offsets(group, {tp: 1}))
    assert backend.admin.group_offsets(group, topic) == {tp: 1}


def test_an_admin_tells_the_offset_at_a_time_or_the_end(backend: Backend) -> None:
    topic = new_topic(backend, 2)
    for second in range(5):
        backend.writer.send(topic, b"x", partition=0, timestamp_ms=1_700_000_000_000 + second * 1000)
    assert backend.writer.flush(PATIENCE) == 0
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert backend.admin.offsets_at(topic, 1_700_000_001_500) == {zero: 2, one: 0}
    assert backend.admin.offsets_at(topic, 1_700_000_099_000) == {zero: 5, one: 0}


def test_stable_watermarks_end_where_an_open_transaction_begins(backend: Backend) -> None:
    topic = new_topic(backend, 1)
    tp = TopicPartition(topic, 0)
    fill(backend, topic, numbered(0, 2))
    producer = backend.transactional(name("tx"))
    producer.begin()
    producer.send(topic, b"open", partition=0)
    assert producer.flush(PATIENCE) == 0
    assert backend.admin.stable_watermarks([tp]) == {tp: Watermarks(0, 2)}
    assert backend.admin.watermarks(topic) == {tp: Watermarks(0, 3)}
    producer.abort_transaction()
    until(lambda: backend.admin.stable_watermarks([tp])[tp].high == 4)
    producer.close()


def test_an_admin_tells_a_topics_settings(backend: Backend) -> None:
    topic = name("kept")
    backend.admin.create_topic(topic, 1, {"retention.ms": "3600000"})
    told = backend.admin.topic_config(topic)
    assert (told["retention.ms"], told["retention.bytes"], told["cleanup.policy"]) == ("3600000", "-1", "delete")


def test_an_admin_tells_the_topics_but_not_the_clusters_own(backend: Backend) -> None:
    topic = name("told")
    backend.admin.create_topic(topic, 1)
    known = backend.admin.topics()
    assert topic in known and known == sorted(known)
    assert not [each for each in known if each.startswith("__")]
