"""Publishes a table to a real cluster. Knows no Dagster."""

from contextlib import ExitStack
from pathlib import Path

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import BrokerAdmin, BrokerConsumer
from consumers.brokers.transactions import KafkaTransactionalProducer
from consumers.clock import SystemClock
from orchestration.feed.config import Feed, transactional_id
from orchestration.feed.sender import Sent, Told, send


def publish_table(path: Path, feed: Feed, kafka: KafkaOptions, told: Told | None = None) -> Sent:
    """Send what is new in the table. Raises as `send`."""
    if feed.partitions is not None:
        _require_topic(KafkaAdmin(kafka), feed.topic, feed.partitions)
    name, clock = transactional_id(path.name), SystemClock()
    with ExitStack() as stack:
        producer = stack.enter_context(KafkaTransactionalProducer(kafka, name, timeout_seconds=feed.transaction_seconds))

        def group_of(group: str) -> BrokerConsumer:
            member = KafkaGroupMember(kafka, feed.topic, group, name)
            stack.callback(member.close)
            return member

        return send(path, feed, producer, group_of, clock, told)


def _require_topic(admin: BrokerAdmin, topic: str, partitions: int) -> None:
    try:
        if topic not in admin.topics():
            admin.create_topic(topic, partitions, {"cleanup.policy": "compact"})
    finally:
        admin.close()
