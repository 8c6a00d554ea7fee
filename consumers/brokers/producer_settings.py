"""The client settings that a producer's promises rest on, and those that may be changed."""

from consumers.brokers.callbacks import ClientCallbacks
from consumers.brokers.options import KafkaOptions, Settings
from consumers.brokers.partitioners import Partitioner

DEFAULTS: Settings = {
    "linger.ms": 20,
    "batch.size": 512 * 1024,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 128 * 1024,
    # How long a topic that nobody knows may turn up yet; the client's own 30 s keep whoever mistyped it waiting.
    "topic.metadata.propagation.max.ms": 5_000,
}
"""Settings of the client that options may change."""
_OURS = {
    "enable.idempotence": "retries would otherwise write records twice",
    "acks": "a record counts as delivered when all replicas have it",
    "partitioner": "give the producer its `partitioner`",
    "transactional.id": "use KafkaTransactionalProducer",
    "delivery.report.only.error": "deliveries are counted",
}


def producer_settings(options: KafkaOptions, client_id: str, partitioner: Partitioner, callbacks: ClientCallbacks) -> Settings:
    """The client's configuration. Raises ValueError for options that would break the producer's promises."""
    for name in options.options.keys() & _OURS.keys():
        raise ValueError(f"the Kafka option {name} cannot be set for a producer: {_OURS[name]}")
    return {
        "client.id": client_id,
        **DEFAULTS,
        **options.client(callbacks.settings()),
        "partitioner": partitioner if isinstance(partitioner, str) else "murmur2_random",
        "enable.idempotence": True,
        "acks": "all",
    }
