"""How to reach a cluster, and the client settings that the guarantees rest on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from consumers.brokers.failures import describe
from consumers.errors import BrokerError
from consumers.membership import GroupSettings

_OURS = {
    "enable.auto.commit": "the table decides what is committed",
    "enable.auto.offset.store": "the table decides what is committed",
    "auto.offset.reset": "a position out of range must stop the consumer, not skip records",
    "enable.partition.eof": "the end of a partition moves positions past transaction markers",
    "group.id": "it follows from the consumer's name",
    "group.protocol": "use the membership setting `protocol`",
    "partition.assignment.strategy": "use the membership settings `protocol` and `assignor`",
}
_BROKERS = {
    "session.timeout.ms": "group.consumer.session.timeout.ms",
    "heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
}
_SECRET = ("password", "secret", "token", ".pem", "sasl.jaas", "sasl.oauthbearer.config", "assertion.private.key")

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A bearer token (never shown), until when it may be used (seconds since the epoch), and whose it is."""

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KafkaOptions:
    """A cluster: its bootstrap servers, and librdkafka options such as TLS and SASL (never shown: they may hold secrets).

    `oauth` gets a new token whenever the client wants one, in a thread of the client; set `security.protocol` and
    `sasl.mechanism: OAUTHBEARER` beside it.
    """

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: Callable[[], OAuthToken] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in self.options.keys() & _OURS.keys():
            raise ValueError(f"the Kafka option {name} cannot be set: {_OURS[name]}")

    def client(self, callbacks: Mapping[str, Any] | None = None) -> Settings:
        """Settings that every client has. Without callbacks it keeps quiet."""
        quiet = {"log_level": 2}
        return {"bootstrap.servers": self.bootstrap_servers, **(quiet if callbacks is None else callbacks), **self.options}

    def reader(self, client_id: str, callbacks: Mapping[str, Any] | None = None) -> Settings:
        """Settings of everyone who reads. Prefetch is bounded to 64 MiB, whatever the number of partitions."""
        return {
            "isolation.level": "read_committed",
            "client.id": client_id,
            "queued.max.messages.kbytes": 64 * 1024,
            # A full prefetch queue is asked again at once rather than after a second, which would halve the rate.
            "fetch.queue.backoff.ms": 5,
            **self.client(callbacks),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }

    def member(self, group: str, client_id: str, settings: GroupSettings, callbacks: Mapping[str, Any] | None = None) -> Settings:
        """Settings of a group member. Raises ValueError where an option contradicts the protocol."""
        if settings.protocol == "consumer":
            for name in self.options.keys() & _BROKERS.keys():
                raise ValueError(
                    f"the Kafka option {name} cannot be set with the protocol 'consumer': the brokers decide it "
                    f"({_BROKERS[name]}, or the group's own setting)"
                )
        return {**_membership(settings), **self.reader(client_id, callbacks), "group.id": group}

    def without_secrets(self, text: str) -> str:
        """The same text with every secret option's value hidden."""
        for name, value in self.options.items():
            if value and any(mark in name for mark in _SECRET):
                text = text.replace(value, "***")
        return text


def _membership(settings: GroupSettings) -> Settings:
    """What the settings are to librdkafka."""
    given = {
        "group.instance.id": settings.instance_id,
        "client.rack": settings.rack,
        "session.timeout.ms": settings.session_seconds and int(settings.session_seconds * 1000),
        "heartbeat.interval.ms": settings.heartbeat_seconds and int(settings.heartbeat_seconds * 1000),
        "max.poll.interval.ms": int(settings.max_poll_seconds * 1000),
        "topic.metadata.refresh.interval.ms": int(settings.refresh_seconds * 1000),
    }
    if settings.protocol == "consumer":
        given |= {"group.protocol": "consumer", "group.remote.assignor": settings.assignor}
    elif settings.protocol == "eager":
        given["partition.assignment.strategy"] = settings.assignor or "range"
    else:
        given["partition.assignment.strategy"] = "cooperative-sticky"
    return {name: value for name, value in given.items() if value is not None}


def unmade(options: KafkaOptions, error: Exception) -> BrokerError:
    """The error for options that the client does not take."""
    why = options.without_secrets(describe(error))
    return BrokerError(f"no client for Kafka at {options.bootstrap_servers} could be made: {why}. Look at the Kafka options.")
