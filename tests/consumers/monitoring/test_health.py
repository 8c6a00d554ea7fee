"""Probes see whether there is progress."""

import json
import logging
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from consumers.clock import ManualClock
from consumers.errors import ConfigError
from consumers.monitoring.health import HealthEndpoint, HealthFile, together


def test_the_file_is_renewed_at_most_once_a_second(tmp_path: Path) -> None:
    clock, path = ManualClock(100), tmp_path / "health"
    file = HealthFile(path, clock)
    assert not path.exists()
    seen = []
    for _ in range(4):
        file.progress()
        seen.append(json.loads(path.read_text())["time"])
        clock.advance(0.5)
    assert seen == [100, 100, 101, 101]


def test_the_file_is_replaced_as_a_whole_and_gone_at_the_end(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "health"
    file = HealthFile(path, clock)
    file.progress()
    with path.open() as before:
        clock.advance(1)
        file.progress()
        assert json.loads(before.read())["time"] == 0
    assert json.loads(path.read_text())["time"] == 1
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_logged_once_and_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, folder = ManualClock(), tmp_path / "folder"
    folder.mkdir()
    file = HealthFile(folder / "health", clock)
    folder.rmdir()
    for _ in range(3):
        file.progress()
        clock.advance(1)
    file.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_folder_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        HealthFile(tmp_path / "missing" / "health", ManualClock())


def get(url: str) -> tuple[int, object]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_endpoint_tells_healthy_from_not_by_the_age_of_progress() -> None:
    clock = ManualClock()
    endpoint = HealthEndpoint(clock, 10, 0)
    url = f"http://127.0.0.1:{endpoint.port}"
    try:
        clock.advance(10)
        assert get(f"{url}/healthz") == (200, {"healthy": True, "seconds_since_progress": 10})
        clock.advance(1)
        assert get(f"{url}/healthz") == (503, {"healthy": False, "seconds_since_progress": 11})
        endpoint.progress()
        assert get(f"{url}/healthz")[0] == 200
        assert get(f"{url}/other")[0] == 404
        with pytest.raises(ConfigError, match="Choose another port"):
            HealthEndpoint(clock, 10, endpoint.port)
    finally:
        endpoint.close()


def test_a_heartbeat_reaches_all() -> None:
    calls: list[str] = []
    together(lambda: calls.append("a"), lambda: calls.append("b"))()
    assert calls == ["a", "b"]
