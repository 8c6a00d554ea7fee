"""How to reach a cluster, and the client settings that the guarantees rest on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_OURS = {
    "enable.auto.commit": "the table decides what is committed",
    "enable.auto.offset.store": "the table decides what is committed",
    "auto.offset.reset": "a position out of range must stop the consumer, not skip records",
    "enable.partition.eof": "the end of a partition moves positions past transaction markers",
    "group.id": "it follows from the consumer's name",
}


@dataclass(frozen=True)
class KafkaOptions:
    """A cluster: its bootstrap servers, and librdkafka options such as TLS and SASL (never shown: they may hold secrets)."""

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in self.options.keys() & _OURS.keys():
            raise ValueError(f"the Kafka option {name} cannot be set: {_OURS[name]}")

    def client(self) -> dict[str, str | int | float | bool]:
        """Settings that every client has."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 2, **self.options}

    def consumer(self, group: str, client_id: str) -> dict[str, str | int | float | bool]:
        """Settings of a group member. Prefetch is bounded to 64 MiB, whatever the number of partitions."""
        return {
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "cooperative-sticky",
            "client.id": client_id,
            "queued.max.messages.kbytes": 64 * 1024,
            # A full prefetch queue is asked again at once rather than after a second, which would halve the rate.
            "fetch.queue.backoff.ms": 5,
            **self.client(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
