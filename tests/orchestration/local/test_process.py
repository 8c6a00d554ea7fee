"""Pids are hints: nobody else's process is taken for a broker, and a broker is found without its pid file."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumers.clock import SystemClock
from orchestration.local import process

READY = "print('ready', flush=True); import signal; signal.pause()"


@pytest.fixture
def spawned() -> Iterator[list["subprocess.Popen[str]"]]:
    children: list[subprocess.Popen[str]] = []
    yield children
    for child in children:
        child.kill()
        child.wait()


def run(children: list["subprocess.Popen[str]"], code: str, *arguments: str) -> "subprocess.Popen[str]":
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_pid_that_now_belongs_to_another_program_is_no_broker(tmp_path: Path, spawned: list["subprocess.Popen[str]"]) -> None:
    other = run(spawned, READY, "/elsewhere/server.properties")
    (tmp_path / "pid").write_text(f"{other.pid}\n")
    assert process.find(tmp_path) is None
    assert other.poll() is None


@pytest.mark.parametrize("content", ["", "nonsense", "999999999", "-1"])
def test_an_unusable_pid_file_means_not_running(tmp_path: Path, content: str) -> None:
    (tmp_path / "pid").write_text(content)
    assert process.find(tmp_path) is None


def test_a_broker_is_found_without_its_pid_file(tmp_path: Path, spawned: list["subprocess.Popen[str]"]) -> None:
    broker = run(spawned, READY, str(tmp_path / "server.properties"))
    found = process.find(tmp_path)
    assert found is not None
    assert found.pid == broker.pid


def test_the_broker_of_a_folder_with_a_longer_name_is_another_one(tmp_path: Path, spawned: list["subprocess.Popen[str]"]) -> None:
    run(spawned, READY, str(tmp_path / "broker-11" / "server.properties"))
    (tmp_path / "broker-1").mkdir()
    assert process.find(tmp_path / "broker-1") is None


def test_whoever_ignores_the_request_to_end_is_killed(tmp_path: Path, spawned: list["subprocess.Popen[str]"]) -> None:
    deaf = run(
        spawned,
        f"import signal; signal.signal(15, signal.SIG_IGN); {READY}",
        str(tmp_path / "server.properties"),
    )
    found = process.find(tmp_path)
    assert found is not None
    process.stop([found], SystemClock(), seconds=0.3)
    assert deaf.poll() is not None
    assert process.find(tmp_path) is None


def test_a_started_process_leads_its_own_session_and_leaves_its_pid(tmp_path: Path) -> None:
    child = process.start([sys.executable, "-c", READY, str(tmp_path / "server.properties")], tmp_path)
    try:
        assert int((tmp_path / "pid").read_text()) == child.pid
        assert os.getsid(child.pid) == child.pid
    finally:
        child.kill()
        child.wait(5)
    assert process.find(tmp_path) is None
