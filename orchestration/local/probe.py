"""Says when a cluster is really usable: every broker is known, leads a partition, and took a record."""

import logging
import socket
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumers.clock import Clock
from orchestration.local.state import Cluster

TOPIC = "__weir_probe"
_POLL_SECONDS = 0.1
_CALL_SECONDS = 5.0

# librdkafka reports every refused connection; while waiting for a start those are expected.
_silent = logging.getLogger("weir.local.probe")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def wait_until_usable(cluster: Cluster, clock: Clock, seconds: float, still_alive: Callable[[], None]) -> bool:
    """True as soon as a client can produce to every broker, False after `seconds`.

    `still_alive` is called while waiting and raises when waiting is in vain.
    """
    deadline = clock.monotonic() + seconds
    while not all(listens(broker.port) for broker in cluster.brokers):
        still_alive()
        if clock.monotonic() > deadline:
            return False
        clock.sleep(_POLL_SECONDS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}, logger=_silent)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "message.timeout.ms": int(_CALL_SECONDS * 1000),
        },
        logger=_silent,
    )
    while not (_complete(admin, len(cluster.brokers)) and _took_a_record(producer, len(cluster.brokers))):
        still_alive()
        if clock.monotonic() > deadline:
            return False
        clock.sleep(_POLL_SECONDS)
    return True


def answers(bootstrap_servers: str, options: Mapping[str, str], seconds: float = 3.0) -> bool:
    """Whether a Kafka client with these `options` of librdkafka gets an answer there within `seconds`."""
    try:
        AdminClient({"bootstrap.servers": bootstrap_servers, **options}, logger=_silent).list_topics(timeout=seconds)
    except KafkaException:
        return False
    return True


def listens(port: int) -> bool:
    """Whether something on loopback takes connections there."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _complete(admin: AdminClient, brokers: int) -> bool:
    """Every broker is in the metadata, and the probe's topic is there with a leader for each partition."""
    try:
        seen = admin.list_topics(timeout=_CALL_SECONDS)
        if len(seen.brokers) < brokers:
            return False
        if TOPIC not in seen.topics:
            new = NewTopic(TOPIC, num_partitions=brokers, replication_factor=brokers, config={"retention.ms": "3600000"})
            admin.create_topics([new], request_timeout=_CALL_SECONDS)[TOPIC].result()
            return False  # not every broker knows it yet
    except KafkaException as error:
        return _may_pass(error)
    return all(partition.leader > 0 for partition in seen.topics[TOPIC].partitions.values())


def _took_a_record(producer: Producer, brokers: int) -> bool:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    for partition in range(brokers):
        producer.produce(TOPIC, b"", partition=partition, on_delivery=delivered)
    return producer.flush(_CALL_SECONDS) == 0 and not failed


def _may_pass(error: KafkaException) -> bool:
    """False for what time may heal; anything else is raised again."""
    cause = error.args[0]
    if isinstance(cause, KafkaError) and (cause.retriable() or cause.code() in _PASSING):
        return False
    raise error


_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
}
