"""Killing brokers of the embedded cluster, and having them back."""

import psutil
from confluent_kafka.admin import AdminClient

from orchestration.local import cluster, process, state
from tests.faults.lab import Lab
from tests.kafka_fixture import settings_in


def running(lab: Lab) -> dict[int, psutil.Process]:
    """The processes of the brokers that run, by id."""
    assert lab.home is not None
    known = state.load(lab.home / "kafka")
    assert known is not None
    found = {broker.id: process.find(known.broker_folder(broker)) for broker in known.brokers}
    return {number: one for number, one in found.items() if one is not None}


def leader(lab: Lab, partition: int) -> int:
    """The id of the broker that leads a partition of the consumer's topic."""
    topic = lab.consumer.config.topic
    found = AdminClient({"bootstrap.servers": lab.bootstrap}).list_topics(topic, 20).topics[topic]
    return int(found.partitions[partition].leader)


def kill(one: psutil.Process, lab: Lab) -> None:
    """SIGKILL, and wait until it is gone."""
    one.kill()
    lab.until(lambda: not process.alive(one))


def bring_back(lab: Lab) -> None:
    """Start what does not run, and wait until the cluster takes records."""
    assert lab.home is not None
    cluster.up(settings_in(lab.home))
