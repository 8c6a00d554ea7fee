"""The embedded cluster with real Kafka: records survive kill -9, ports and brokers behave."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from orchestration.local import cluster, process, state
from orchestration.local.errors import LocalError
from orchestration.samples import produce
from tests.kafka_fixture import kafka, settings_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def stored(bootstrap_servers: str, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
    """Every (key, value, timestamp) of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test", "auto.offset.reset": "earliest"})
    try:
        parts = [TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions]
        wanted = sum(consumer.get_watermark_offsets(part)[1] for part in parts)
        consumer.assign([TopicPartition(topic, part.partition, 0) for part in parts])
        found = []
        while len(found) < wanted:
            batch = consumer.consume(wanted - len(found), timeout=30)
            assert batch, f"{len(found)} of {wanted} records came"
            for message in batch:
                assert message.error() is None
                found.append((message.key(), message.value(), message.timestamp()[1]))
        return found
    finally:
        consumer.close()


def kill(settings_folder: Path) -> None:
    """SIGKILL every broker there and wait until they are gone."""
    for folder in (settings_folder / "kafka").glob("broker-*"):
        found = process.find(folder)
        assert found is not None
        found.send_signal(signal.SIGKILL)
        psutil.wait_procs([found], timeout=20)
        assert process.find(folder) is None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for the tests that leave it running; each uses its own topic."""
    with kafka(tmp_path_factory.mktemp("shared")) as bootstrap_servers:
        yield bootstrap_servers


def test_what_is_produced_can_be_consumed_as_it_was_made(shared: str) -> None:
    produced = produce.produce("transactions", shared, limit=3000, malformed=0.05)
    chosen = produce.sample("transactions")
    frame = chosen.frame(produce.SEED)[:3000]
    broken = produce.malformed_rows(3000, 0.05)
    expected = [tuple(record) for record in produce.records(chosen, frame, broken, produce.SEED)]
    assert (produced.records, produced.malformed, produced.failed) == (3000, int(broken.sum()), 0)
    assert sorted(stored(shared, "transactions")) == sorted(expected)


def test_after_kill_9_the_next_up_has_the_old_records(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with kafka(tmp_path) as bootstrap_servers:
        produce.produce("weather", bootstrap_servers, limit=2000)
        before = stored(bootstrap_servers, "weather")
        kill(tmp_path)
        with pytest.raises(LocalError, match="no Kafka cluster runs"):
            cluster.bootstrap_servers(settings)
        again = cluster.up(settings)
        assert (again.started, again.bootstrap_servers) == ((1,), bootstrap_servers)
        assert len(before) == 2000
        assert sorted(stored(again.bootstrap_servers, "weather")) == sorted(before)


def test_up_finds_a_running_broker_whose_pid_was_never_written(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with kafka(tmp_path) as bootstrap_servers:
        (tmp_path / "kafka" / "broker-1" / "pid").unlink()
        again = cluster.up(settings)
        assert (again.started, again.bootstrap_servers) == ((), bootstrap_servers)
        found = cluster.status(settings)
        assert found.usable
        assert found.brokers[0].pid is not None
    assert cluster.down(settings) == (), "the end of the block had stopped it"


def test_an_occupied_port_is_one_clear_line_and_nothing_is_started(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with socket.socket() as listener:
        listener.bind((state.LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(LocalError, match=f"port {port} .* is taken") as raised:
            cluster.up(settings, port=port)
    assert "\n" not in str(raised.value)
    assert cluster.status(settings).brokers == ()


def test_a_topic_made_anew_has_only_its_new_records(shared: str) -> None:
    produce.produce("weather", shared, limit=50)
    assert produce.create_topics(shared, [produce.sample("weather")]) == ()
    produce.produce("weather", shared, limit=20, recreate=True)
    assert len(stored(shared, "weather")) == 20


def test_a_replay_that_is_stopped_has_delivered_what_it_said(shared: str) -> None:
    replay = produce.replay(shared, rate=2000.0, start=100)
    sent = next(number for number in replay if number >= 400)
    replay.close()
    assert len(stored(shared, "flights")) == sent


def test_a_broker_that_cannot_start_is_explained_in_one_line(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with kafka(tmp_path):
        cluster.down(settings)
        (tmp_path / "kafka" / "broker-1" / "data" / "meta.properties").unlink()
        with pytest.raises(LocalError, match=r"broker 1 ended while starting: .*meta\.properties.*see .*kafka\.log") as raised:
            cluster.up(settings)
        assert "\n" not in str(raised.value)
        assert cluster.down(settings) == ()


def test_three_brokers_replicate_and_one_that_was_killed_comes_back(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with kafka(tmp_path, brokers=3) as bootstrap_servers:
        assert bootstrap_servers.count(",") == 2
        produce.produce("weather", bootstrap_servers, limit=1000)
        seen = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics("weather", timeout=10)
        assert {len(part.replicas) for part in seen.topics["weather"].partitions.values()} == {3}
        victim = process.find(tmp_path / "kafka" / "broker-2")
        assert victim is not None
        victim.send_signal(signal.SIGKILL)
        psutil.wait_procs([victim], timeout=20)
        assert cluster.up(settings).started == (2,)
        assert len(stored(bootstrap_servers, "weather")) == 1000
