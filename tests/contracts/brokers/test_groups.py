"""What the members of a group can rely on, on either broker and under every protocol."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from consumers.brokers.protocol import Partitions
from consumers.errors import BrokerError
from consumers.types import TopicPartition
from tests.contracts.brokers.backends import PATIENCE, Backend, Follower, fill, following, name, new_topic, numbered, quick, until

PROTOCOLS = ("eager", "cooperative", "consumer")
Told = list[tuple[str, str, Partitions]]


@dataclass
class Story:
    """One group on four partitions: who was told what, in order, and what each held after each step."""

    told: Told
    alone: Partitions
    together: tuple[Partitions, Partitions]
    after: Partitions
    joined_at: int
    left_at: int

    def changes(self, member: str, how: str) -> list[TopicPartition]:
        """The partitions that a member was told of while the other joined."""
        told = self.told[self.joined_at : self.left_at]
        return [tp for who, what, partitions in told for tp in sorted(partitions) if (who, what) == (member, how)]


def test_a_member_without_partitions_is_told_so(backend: Backend) -> None:
    topic, group = new_topic(backend), name("g")
    with following(*(backend.member(topic, group, quick()) for _ in range(2))) as (one, two):
        until(lambda: one.answered and two.answered and bool(one.held or two.held), one, two)
        assert len(one.held | two.held) == 1
        assert not one.held or not two.held


def test_what_a_group_committed_is_told_to_its_members_and_to_admins(backend: Backend) -> None:
    topic, group = new_topic(backend, 2, values=numbered(0, 5)), name("g")
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with following(backend.member(topic, group, quick())) as member:
        until(lambda: len(member.held) == 2, member)
        assert member.consumer.group_offsets(member.held) == {}
        member.consumer.commit({here: 3}, wait=True)
        assert member.consumer.group_offsets(member.held) == {here: 3}
        member.consumer.commit({here: 5})
        until(lambda: backend.admin.group_offsets(group, topic) == {here: 5}, member)
    assert backend.admin.group_offsets(name("g"), topic) == {}
    assert there not in backend.admin.group_offsets(group, topic)


def test_what_was_committed_for_a_deleted_topic_is_forgotten(backend: Backend) -> None:
    topic, group = new_topic(backend, values=[b"1"]), name("g")
    tp = TopicPartition(topic, 0)
    with following(backend.member(topic, group, quick())) as member:
        until(lambda: bool(member.held), member)
        member.consumer.commit({tp: 1}, wait=True)
    backend.admin.delete_topic(topic)
    backend.admin.create_topic(topic)
    until(lambda: backend.admin.group_offsets(group, topic) == {})


def test_without_a_group_nothing_is_committed(backend: Backend) -> None:
    topic = new_topic(backend, values=[b"1"])
    with following(backend.reader(topic)) as reader:
        until(lambda: bool(reader.held), reader)
        reader.consumer.commit({TopicPartition(topic, 0): 1}, wait=True)
        assert reader.consumer.group_offsets(reader.held) == {}
        with pytest.raises(BrokerError, match="without a group"):
            reader.consumer.group_metadata()


def test_a_paused_member_stays_one_and_partitions_that_come_back_stay_paused(backend: Backend) -> None:
    topic, group = new_topic(backend, 2, values=numbered(0, 3)), name("g")
    fill(backend, topic, numbered(3, 6), 1)
    with following(backend.member(topic, group, quick())) as paused:
        paused.consumer.pause()
        until(lambda: len(paused.held) == 2, paused)
        with following(backend.member(topic, group, quick())) as other:
            until(lambda: len(paused.held) == len(other.held) == 1, paused, other)
        until(lambda: len(paused.held) == 2, paused)
        for _ in range(5):
            assert paused.turn() is None
        assert not paused.rows
        paused.consumer.resume()
        until(lambda: sorted(paused.values()) == numbered(0, 6), paused)


def test_a_group_notices_new_partitions(backend: Backend) -> None:
    topic, group = new_topic(backend), name("g")
    with following(backend.member(topic, group, quick())) as member:
        until(lambda: len(member.held) == 1, member)
        backend.admin.add_partitions(topic, 3)
        until(lambda: len(member.held) == 3, member)
        assert member.held == member.consumer.partitions()


def test_a_member_whose_position_is_gone_joins_again_and_is_asked_anew(backend: Backend) -> None:
    topic, group = new_topic(backend, values=numbered(0, 10)), name("g")
    tp = TopicPartition(topic, 0)
    with following(backend.member(topic, group, quick())) as member:
        until(lambda: member.end() == 10, member)
        backend.admin.delete_records({tp: 6})
        member.seek({tp: 2})
        until(lambda: len(member.rows) == 14, member)
    assert member.values()[10:] == numbered(6, 10)
    assert [how for _, how, partitions in member.told if partitions] == ["assigned", "revoked", "assigned", "revoked"]


def test_a_member_that_was_replaced_can_neither_commit_nor_go_on(backend: Backend) -> None:
    topic, group = new_topic(backend, values=numbered(0, 5)), name("g")
    tp = TopicPartition(topic, 0)
    old = Follower(backend.member(topic, group, quick("eager", instance_id="one")))
    until(lambda: bool(old.held), old)
    with following(backend.member(topic, group, quick("eager", instance_id="one"))) as new:
        until(lambda: bool(new.held), new)
        new.consumer.commit({tp: 4}, wait=True)
        old.consumer.commit({tp: 1}, wait=True)
        assert new.consumer.group_offsets(new.held) == {tp: 4}
        with pytest.raises(BrokerError):
            until(lambda: False, old)
        old.consumer.close()
        new.turn()
        assert new.held == {tp}


def test_what_a_listener_raises_comes_out_of_poll(backend: Backend) -> None:
    class Refused(Exception):
        pass

    def refuse(partitions: Partitions) -> dict[TopicPartition, int]:
        raise Refused

    member = Follower(backend.member(new_topic(backend), name("g"), quick()))
    member.starts = refuse
    with pytest.raises(Refused):
        until(lambda: False, member)
    member.consumer.close()


def tell(backend: Backend, topic: str, protocol: str) -> Story:
    """One member, a second that joins, and leaves."""
    group, told = name("g"), Told()
    with ExitStack() as stack:

        def join(who: str) -> Follower:
            follower = Follower(backend.member(topic, group, quick(protocol)), who, told)
            stack.callback(follower.consumer.close)
            return follower

        first = join("first")
        until(lambda: len(first.held) == 4, first)
        alone, joined_at = first.held, len(told)
        second = join("second")
        until(lambda: len(first.held) == len(second.held) == 2, first, second)
        together, left_at = (first.held, second.held), len(told)
        second.consumer.close()
        until(lambda: len(first.held) == 4, first)
        return Story(list(told), alone, together, first.held, joined_at, left_at)


@pytest.fixture(scope="module", autouse=True)
def stories(backend: Backend) -> Iterator[dict[str, Future[Story]]]:
    """A story under every protocol. They go on beside the tests above, since heartbeats under `consumer` are seconds apart."""
    topic = new_topic(backend, 4)
    with ThreadPoolExecutor(len(PROTOCOLS)) as threads:
        yield {protocol: threads.submit(tell, backend, topic, protocol) for protocol in PROTOCOLS}


@pytest.fixture
def story(stories: dict[str, Future[Story]], protocol: str) -> Story:
    return stories[protocol].result(PATIENCE)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_none_has_two_readers(story: Story, protocol: str) -> None:
    first, second = story.together
    assert first | second == story.alone
    assert not first & second


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_partition_is_given_back_before_another_member_has_it(story: Story, protocol: str) -> None:
    holder: dict[TopicPartition, str] = {}
    for who, how, partitions in story.told:
        for tp in partitions:
            if how == "assigned":
                assert holder.setdefault(tp, who) == who, f"{tp} was given to {who} while {holder[tp]} had it"
            else:
                assert holder.pop(tp) == who
    assert len(holder) == 4


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_only_the_partitions_that_move_are_revoked(story: Story, protocol: str) -> None:
    kept, moved = story.together
    assert story.changes("first", "revoked") == sorted(moved)
    assert story.changes("first", "assigned") == []
    assert story.changes("second", "assigned") == sorted(moved)
    assert kept


@pytest.mark.parametrize("protocol", ["eager"])
def test_an_eager_group_gives_everything_back_and_deals_anew(story: Story, protocol: str) -> None:
    assert story.changes("first", "revoked") == sorted(story.alone)
    assert story.changes("first", "assigned") == sorted(story.together[0])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_partitions_of_a_member_that_leaves_go_to_those_that_stay(story: Story, protocol: str) -> None:
    assert story.after == story.alone
    assert ("second", "revoked", story.together[1]) in story.told
