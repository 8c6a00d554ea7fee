"""What `up`, `down` and `status` do where no broker is started."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.local import cluster, jars, state
from orchestration.local.errors import LocalError
from orchestration.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "home", tmp_path / "tables", tmp_path / "cache", None)


def test_with_a_cluster_of_the_environment_nothing_is_started(settings: Settings) -> None:
    done = cluster.up(replace(settings, bootstrap_servers="kafka.example:9092"), 3)
    assert (done.bootstrap_servers, done.external, done.started) == ("kafka.example:9092", True, ())
    assert not settings.home.exists()


def test_the_cluster_of_the_environment_wins(settings: Settings) -> None:
    assert cluster.bootstrap_servers(replace(settings, bootstrap_servers="k:1")) == "k:1"


def test_without_a_cluster_the_error_names_the_command(settings: Settings) -> None:
    with pytest.raises(LocalError, match="weir kafka up"):
        cluster.bootstrap_servers(settings)


def test_a_cluster_that_does_not_run_has_no_address(settings: Settings) -> None:
    state.save(state.with_ports(state.new_cluster(settings.home / "kafka", 1), 0))
    with pytest.raises(LocalError, match="weir kafka up"):
        cluster.bootstrap_servers(settings)
    assert cluster.status(settings).brokers[0].pid is None


def test_another_number_of_brokers_than_the_data_has_is_refused(settings: Settings) -> None:
    state.save(state.with_ports(state.new_cluster(settings.home / "kafka", 3), 0))
    with pytest.raises(LocalError, match=r"has 3 broker\(s\), not 1"):
        cluster.up(settings, 1)


def test_two_brokers_are_refused(settings: Settings) -> None:
    with pytest.raises(LocalError, match="1 or 3 brokers, not 2"):
        cluster.up(settings, 2)


def test_data_without_its_record_is_not_overwritten(settings: Settings) -> None:
    data = settings.home / "kafka" / "broker-1" / "data"
    data.mkdir(parents=True)
    with pytest.raises(LocalError, match=r"cluster\.json is gone"):
        cluster.up(settings)
    assert data.exists()


def test_a_nearly_full_disk_is_said_before_anything_starts(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=2**30 - 1))
    monkeypatch.setattr(jars, "fetch", lambda *_: pytest.fail("went on"))
    with pytest.raises(LocalError, match="not enough disk"):
        cluster.up(settings, port=0)


def test_down_where_nothing_is_stops_nothing(settings: Settings) -> None:
    assert cluster.down(settings) == ()
