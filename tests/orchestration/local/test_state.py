"""The record of a cluster and its ports."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.local import server, state
from orchestration.local.errors import LocalError


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((state.LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_saved_cluster_is_loaded_as_it_was(tmp_path: Path) -> None:
    cluster = state.with_ports(state.new_cluster(tmp_path, 3), 0)
    state.save(cluster)
    assert state.load(tmp_path) == cluster


def test_where_none_was_saved_there_is_none(tmp_path: Path) -> None:
    assert state.load(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cluster_id": "x"}', '{"cluster_id": "x", "brokers": [{"id": 1}]}'])
def test_a_damaged_record_is_one_line_that_says_the_data_is_untouched(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(LocalError, match=r"cluster\.json cannot be read.*untouched"):
        state.load(tmp_path)


def test_a_cluster_id_is_what_kafka_takes() -> None:
    for _ in range(200):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", state.new_cluster(Path("/x"), 1).cluster_id)


def test_a_taken_port_is_one_line_that_names_it(tmp_path: Path, taken_port: int) -> None:
    with pytest.raises(LocalError, match=f"port {taken_port} .*taken.*--port"):
        state.with_ports(state.new_cluster(tmp_path, 1), taken_port)


def test_the_ports_of_a_cluster_stay_when_none_is_asked_for(tmp_path: Path) -> None:
    cluster = state.with_ports(state.new_cluster(tmp_path, 3), 0)
    assert state.with_ports(cluster, None).brokers == cluster.brokers


def test_brokers_take_the_ports_after_the_first(tmp_path: Path) -> None:
    first = next(p for p in range(21000, 31000) if all(state._is_free(p + n) for n in range(3)))
    cluster = state.with_ports(state.new_cluster(tmp_path, 3), first)
    assert [broker.port for broker in cluster.brokers] == [first, first + 1, first + 2]
    assert len({broker.controller_port for broker in cluster.brokers}) == 3


def test_three_brokers_replicate_their_own_topics_three_times_and_one_only_once(tmp_path: Path) -> None:
    for brokers, replicas, in_sync in ((1, "1", "1"), (3, "3", "2")):
        cluster = state.with_ports(state.new_cluster(tmp_path, brokers), 0)
        values = server.properties(cluster, cluster.brokers[-1])
        assert values["offsets.topic.replication.factor"] == replicas
        assert values["transaction.state.log.replication.factor"] == replicas
        assert values["transaction.state.log.min.isr"] == in_sync
        assert values["node.id"] == str(brokers)
        assert len(values["controller.quorum.voters"].split(",")) == brokers


def test_a_broker_listens_on_loopback_only(tmp_path: Path) -> None:
    cluster = state.with_ports(state.new_cluster(tmp_path, 1), 0)
    for listener in server.properties(cluster, cluster.brokers[0])["listeners"].split(","):
        assert listener.split("://")[1].startswith("127.0.0.1:")


def test_a_backslash_survives_a_java_properties_file() -> None:
    assert server.rendered({"log.dirs": "a\\b"}) == "log.dirs=a\\\\b\n"
