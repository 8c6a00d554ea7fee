"""Readers of a real cluster without an engine: every way to come by partitions, pauses, and what brokers refuse."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.kafka import KafkaAssignment, KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import Partitions
from consumers.clock import SystemClock
from consumers.errors import BrokerError, DataLoss
from consumers.membership import GroupSettings
from consumers.types import Positions, RecordBatch, TopicPartition
from tests.faults.ledger import new_topic, produce

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

COOPERATIVE = GroupSettings(session_seconds=6, heartbeat_seconds=0.3, refresh_seconds=0.3, max_poll_seconds=10)
EAGER = COOPERATIVE.model_copy(update={"protocol": "eager"})
CONSUMER = GroupSettings(protocol="consumer", refresh_seconds=0.3)
every_protocol = pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER], ids=lambda settings: settings.protocol)


class Reader:
    """A listener that starts where it stopped, and the reader that it listens to."""

    def __init__(self, reader: KafkaGroupMember | KafkaAssignment) -> None:
        self.reader = reader
        self.heard: list[tuple[str, Partitions]] = []
        self.positions: dict[TopicPartition, int] = {}
        self.holds: set[TopicPartition] = set()
        reader.subscribe(self)

    def assigned(self, partitions: Partitions) -> Positions:
        self.heard.append(("assigned", partitions))
        self.holds |= partitions
        return {tp: self.positions.get(tp, 0) for tp in partitions}

    def revoked(self, partitions: Partitions) -> None:
        self.heard.append(("revoked", partitions))
        self.holds -= partitions

    def lost(self, partitions: Partitions) -> None:
        self.heard.append(("lost", partitions))
        self.holds -= partitions

    def poll(self) -> RecordBatch | None:
        batch = self.reader.poll(1_000, 0.05)
        if batch is not None:
            self.positions |= {tp: r.end for tp, r in batch.ranges.items()}
        return batch

    @property
    def read(self) -> int:
        return sum(self.positions.values())

    def told(self, kind: str) -> int:
        return sum(heard == kind for heard, _ in self.heard)


def poll_until(readers: Iterable[Reader], wanted: Callable[[], bool], seconds: float = 40.0) -> None:
    """Poll all of them by turns until it is so."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    everyone = list(readers)
    while not wanted():
        assert clock.monotonic() < deadline, [(one.heard, one.positions) for one in everyone]
        for one in everyone:
            one.poll()


def poll_for(readers: Iterable[Reader], seconds: float) -> None:
    """Poll all of them by turns for some time."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    everyone = list(readers)
    while clock.monotonic() < deadline:
        for one in everyone:
            one.poll()


@contextmanager
def member(kafka: str, topic: str, settings: GroupSettings, group: str | None = None) -> Iterator[Reader]:
    """A member of the topic's group, which it leaves at the end."""
    broker = KafkaGroupMember(KafkaOptions(kafka), topic, group or f"g-{topic}", uuid.uuid4().hex, settings=settings)
    try:
        yield Reader(broker)
    finally:
        broker.close()


@contextmanager
def assignment(kafka: str, topic: str, partitions: list[int] | None = None) -> Iterator[Reader]:
    """A reader of named partitions, or of all."""
    broker = KafkaAssignment(KafkaOptions(kafka), topic, "alone", partitions, refresh_seconds=0.2)
    try:
        yield Reader(broker)
    finally:
        broker.close()


@every_protocol
def test_a_member_that_there_is_no_partition_for_is_told_so(kafka: str, settings: GroupSettings) -> None:
    topic = new_topic(kafka, 1)
    with member(kafka, topic, settings) as first:
        poll_until([first], lambda: bool(first.holds))
        with member(kafka, topic, settings) as second:
            poll_until([first, second], lambda: ("assigned", frozenset()) in first.heard + second.heard)


@every_protocol
def test_a_partition_that_comes_while_paused_stays_paused(kafka: str, settings: GroupSettings) -> None:
    topic = new_topic(kafka, 1)
    with member(kafka, topic, settings) as one:
        poll_until([one], lambda: bool(one.holds))
        one.reader.pause()
        KafkaAdmin(KafkaOptions(kafka)).add_partitions(topic, 2)
        produce(kafka, topic, 40, 2)
        poll_until([one], lambda: len(one.holds) == 2)
        poll_for([one], 1.0)
        assert one.read == 0
        one.reader.resume()
        poll_until([one], lambda: one.read == 40)


@every_protocol
def test_a_partition_that_went_while_paused_and_comes_back_is_read(kafka: str, settings: GroupSettings) -> None:
    topic = new_topic(kafka, 2)
    with member(kafka, topic, settings) as stays:
        poll_until([stays], lambda: len(stays.holds) == 2)
        stays.reader.pause()
        with member(kafka, topic, settings) as guest:
            poll_until([stays, guest], lambda: len(stays.holds) == len(guest.holds) == 1)
            stays.reader.resume()
        produce(kafka, topic, 40, 2)
        poll_until([stays], lambda: stays.read == 40)


@every_protocol
def test_what_a_member_commits_is_what_its_group_has(kafka: str, settings: GroupSettings) -> None:
    topic = new_topic(kafka, 1)
    tp = TopicPartition(topic, 0)
    with member(kafka, topic, settings) as one:
        poll_until([one], lambda: bool(one.holds))
        one.reader.commit({tp: 7}, wait=True)
        assert one.reader.group_offsets(frozenset({tp})) == {tp: 7}
    assert KafkaAdmin(KafkaOptions(kafka)).group_offsets(f"g-{topic}", topic) == {tp: 7}


def test_a_pause_longer_than_the_poll_interval_costs_no_membership_and_silence_does(kafka: str) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, 10, 1)
    impatient = CONSUMER.model_copy(update={"max_poll_seconds": 2.0})
    with member(kafka, topic, impatient) as one, assignment(kafka, topic) as other:
        poll_until([one, other], lambda: one.read == 10)
        one.reader.pause()
        poll_for([one, other], 4.0)
        assert (one.told("lost"), one.told("revoked")) == (0, 0)
        poll_for([other], 4.0)  # what the interval is for: nobody polls the first one
        poll_until([one], lambda: one.told("lost") == 1)


@pytest.mark.parametrize("settings", [COOPERATIVE, CONSUMER], ids=lambda settings: settings.protocol)
def test_two_members_with_one_instance_id_end_in_an_error_that_says_so(kafka: str, settings: GroupSettings) -> None:
    topic = new_topic(kafka, 1)
    settings = settings.model_copy(update={"instance_id": "same"})
    with member(kafka, topic, settings) as one:
        poll_until([one], lambda: bool(one.holds))
        with (
            member(kafka, topic, settings) as two,
            pytest.raises(BrokerError, match=r"committed is safe\. Another member runs with the same instance id"),
        ):
            poll_until([one, two], lambda: False)


def test_members_of_two_protocols_end_in_an_error_that_says_what_to_do(kafka: str) -> None:
    topic = new_topic(kafka, 1)
    with member(kafka, topic, COOPERATIVE) as one:
        poll_until([one], lambda: bool(one.holds))
        with member(kafka, topic, EAGER) as two, pytest.raises(BrokerError, match="Stop all of them"):
            poll_until([one, two], lambda: False)


def test_all_partitions_are_read_without_a_group_also_those_that_come_later(kafka: str) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, 40, 2)
    with assignment(kafka, topic) as one:
        poll_until([one], lambda: one.read == 40)
        KafkaAdmin(KafkaOptions(kafka)).add_partitions(topic, 3)
        produce(kafka, topic, 40, [2])
        poll_until([one], lambda: one.read == 80)
        one.reader.commit(one.positions, wait=True)
        assert one.reader.group_offsets(one.reader.partitions()) == {}
    everything = frozenset(TopicPartition(topic, p) for p in range(3))
    assert one.heard[0] == ("assigned", everything - {TopicPartition(topic, 2)})
    assert one.heard[1:] == [("assigned", frozenset({TopicPartition(topic, 2)})), ("revoked", everything)]


def test_only_the_named_partitions_are_read(kafka: str) -> None:
    topic = new_topic(kafka, 3)
    produce(kafka, topic, 60, 3)
    end = KafkaAdmin(KafkaOptions(kafka)).watermarks(topic)[TopicPartition(topic, 1)].high
    with assignment(kafka, topic, [1]) as one:
        poll_until([one], lambda: one.positions == {TopicPartition(topic, 1): end})


def test_a_named_partition_that_is_not_there_is_an_error(kafka: str) -> None:
    topic = new_topic(kafka, 2)
    with (
        assignment(kafka, topic, [1, 5]) as one,
        pytest.raises(BrokerError, match=f"topic '{topic}' has no partition 5: it has 0 to 1"),
    ):
        one.poll()


def test_without_a_group_the_listener_is_asked_anew_when_a_position_is_gone(kafka: str) -> None:
    topic = new_topic(kafka, 1)
    tp = TopicPartition(topic, 0)
    produce(kafka, topic, 20, 1)
    KafkaAdmin(KafkaOptions(kafka)).delete_records({tp: 10})
    with assignment(kafka, topic) as one:
        poll_until([one], lambda: one.told("revoked") == 1)
        one.positions[tp] = 10
        poll_until([one], lambda: one.read == 20)


def test_a_listener_that_insists_on_a_position_that_is_gone_ends_the_run(kafka: str) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, 20, 1)
    KafkaAdmin(KafkaOptions(kafka)).delete_records({TopicPartition(topic, 0): 10})
    with assignment(kafka, topic) as one, pytest.raises(DataLoss, match="offset 0 is not in the topic any more"):
        poll_until([one], lambda: False)
