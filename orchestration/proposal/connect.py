"""Reaching a topic for a look at it, or knowing why that is not possible."""

from collections.abc import Callable

from consumers.brokers.kafka import KafkaAssignment
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import BrokerConsumer
from orchestration.local.cluster import bootstrap_servers
from orchestration.local.errors import LocalError
from orchestration.local.probe import answers
from orchestration.settings import Settings

CLIENT = "weir-look"


def reader(topic: str, settings: Settings) -> tuple[Callable[[], BrokerConsumer] | None, str]:
    """What makes readers of the topic, or None and the reason. What is asked of a cluster that answers may still be refused."""
    try:
        servers = bootstrap_servers(settings)
    except LocalError as error:
        return None, f"No cluster was looked at: {error}"
    if not answers(servers, settings.kafka):
        return None, f"Nothing is proposed, because no Kafka answers at {servers}."
    return (lambda: KafkaAssignment(KafkaOptions(servers, settings.kafka), topic, CLIENT)), ""
