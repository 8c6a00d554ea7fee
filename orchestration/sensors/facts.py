"""What a tick of a consumer's sensor looks at outside of Dagster: Kafka's watermarks, the table's positions. Reads only."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from deltalake import DeltaTable

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.config import Consumer
from consumers.staging.log import StagedCommit, latest
from consumers.staging.positions import committed_positions
from consumers.types import TopicPartition, Watermarks

TIMEOUT_SECONDS = 5.0
_RECENT_COMMITS = 50


class Watermarked(Protocol):
    """What is asked of a cluster."""

    def topics(self) -> list[str]: ...

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]: ...

    def stable_watermarks(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]: ...

    def offsets_at(self, topic: str, timestamp_ms: int) -> Mapping[TopicPartition, int]: ...

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]: ...


def admin(options: KafkaOptions) -> KafkaAdmin:
    """A client whose every question is answered or given up within five seconds."""
    return KafkaAdmin(options, timeout=TIMEOUT_SECONDS)


def marks_of(kafka: Watermarked, consumer: Consumer) -> dict[TopicPartition, Watermarks]:
    """The watermarks of every partition that the consumer reads now. Raises BrokerError."""
    return {tp: mark for topic in topics_of(kafka, consumer) for tp, mark in kafka.watermarks(topic).items()}


def topics_of(kafka: Watermarked, consumer: Consumer) -> list[str]:
    """The topics that the consumer reads now; only a pattern needs to ask for them. Raises BrokerError."""
    return consumer.config.topics_among(kafka.topics)


def next_offsets(kafka: Watermarked, consumer: Consumer, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, int]:
    """Where a member would start to read each partition: the table's position, else the group's offset, else `start`.

    A start at a timestamp counts as the lowest offset: the lag is at most that.
    """
    found: dict[TopicPartition, int] = {}
    for topic in {tp.topic for tp in marks}:
        count = sum(tp.topic == topic for tp in marks)
        positions = committed_positions(consumer.staged, consumer.name, topic, count)
        if len(positions) < count:
            positions = {**kafka.group_offsets(consumer.group, topic), **positions}
        found |= positions
    first = {tp: mark.high if consumer.config.start == "latest" else mark.low for tp, mark in marks.items()}
    return {tp: found.get(tp, first[tp]) for tp in marks}


def offsets_at(kafka: Watermarked, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
    """The first offset at or after a time, of all partitions of these topics. Raises BrokerError."""
    topics = {tp.topic for tp in partitions}
    return {tp: offset for topic in topics for tp, offset in kafka.offsets_at(topic, timestamp_ms).items()}


def total_lag(marks: Mapping[TopicPartition, Watermarks], positions: Mapping[TopicPartition, int]) -> int:
    """Records between the positions and the high watermarks."""
    return sum(mark.lag(positions[tp]) for tp, mark in marks.items())


def recent_commits(consumer: Consumer) -> list[StagedCommit]:
    """The last commits of the table, oldest first; none where there is no table yet."""
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return []
    return latest(DeltaTable(consumer.staged), _RECENT_COMMITS)
