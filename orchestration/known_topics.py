"""Which topics have assets: those that a definition names, and those that are like its pattern when the code is loaded."""

from functools import cache

from consumers.config import Consumer
from consumers.errors import BrokerError
from orchestration.connection import kafka_options
from orchestration.local.errors import LocalError
from orchestration.sensors.facts import admin
from orchestration.settings import Settings


def known_topics(consumer: Consumer) -> list[str]:
    """The consumer's topics as far as they are known; none of a pattern while Kafka cannot be asked."""
    return consumer.config.topics_among(_existing)


@cache
def _existing() -> tuple[str, ...]:
    """The cluster's topics, asked for once."""
    try:
        return tuple(admin(kafka_options(Settings.load())).topics())
    except (BrokerError, LocalError):
        return ()
