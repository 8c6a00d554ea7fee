"""Which topic an operator means, of a consumer of one or of several."""

from consumers.config import Consumer
from consumers.errors import ConfigError
from consumers.types import TopicPartition


def one_topic(consumer: Consumer, topic: str) -> Consumer:
    """The consumer as far as one topic goes; empty is its only one. Raises `ConfigError` for one that it does not read."""
    config = consumer.config
    if not topic and config.only_topic is not None:
        return consumer
    if topic not in config.topics_among(lambda: [topic]):
        raise ConfigError(f"`topic`: name one that {consumer.name} reads, which are {config.reads}. Nothing was changed.")
    return consumer.of_topic(topic)


def partition_of(consumer: Consumer, text: str) -> TopicPartition:
    """A partition as written in run config: its number, or topic/number where there are several topics.

    Raises `ValueError` for what is no number, and `ConfigError` for a topic that the consumer does not read.
    """
    topic, _, number = text.rpartition("/")
    return TopicPartition(one_topic(consumer, topic).config.topic, int(number))
