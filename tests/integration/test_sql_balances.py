"""Account balances from real Kafka in SQL databases: `weir balances`, with errors injected and members killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, create_engine, func, inspect, select

from consumers.clock import SystemClock
from orchestration.samples.balances import BALANCES, differences
from orchestration.samples.produce import expected_balances, produce

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

COUNT = 20_000
MALFORMED = 0.01


@pytest.fixture(scope="module")
def filled(kafka: str) -> str:
    """The cluster, with transactions in it."""
    produce("transactions", kafka, malformed=MALFORMED, limit=COUNT, recreate=True)
    return kafka


def weir(url: URL, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "orchestration.cli", "balances", *arguments]
    return [*command, "--database", url.render_as_string(hide_password=False)]


def surroundings(kafka: str, home: Path) -> dict[str, str]:
    return {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": kafka, "WEIR_HOME": str(home)}


def run(kafka: str, url: URL, home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = weir(url, *arguments)
    return subprocess.run(command, env=surroundings(kafka, home), capture_output=True, text=True, check=False, timeout=120)


def test_balances_under_injected_errors_are_right_and_a_double_count_is_found(filled: str, sql_url: URL, tmp_path: Path) -> None:
    produced = ("--malformed", str(MALFORMED), "--limit", str(COUNT))
    before = run(filled, sql_url, tmp_path, "check", *produced)
    assert before.returncode == 1
    assert "are wrong" in before.stdout or "there is no database" in before.stderr  # a server, or a file that is not there yet
    done = run(filled, sql_url, tmp_path, "run", "--errors", "0.1")
    assert done.returncode == 0, done.stderr
    assert "0 injected" not in done.stdout
    right = run(filled, sql_url, tmp_path, "check", *produced)
    assert (right.returncode, "balances are right" in right.stdout) == (0, True), right.stdout
    again = run(filled, sql_url, tmp_path, "run")
    assert again.returncode == 0, again.stderr
    engine = create_engine(sql_url)
    assert differences(engine, expected_balances(limit=COUNT, malformed=MALFORMED)) == []
    with engine.begin() as connection:
        one = connection.execute(select(BALANCES).order_by(BALANCES.c.account_id)).first()
        assert one is not None
        connection.execute(BALANCES.update().where(BALANCES.c.account_id == one.account_id).values(cents=one.cents + 1))
    wrong = run(filled, sql_url, tmp_path, "check", *produced)
    assert (wrong.returncode, wrong.stdout.split(":")[0]) == (1, one.account_id)
    engine.dispose()


CHILD = """
import random, sys, threading
from sqlalchemy import create_engine
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.database.faults import faults
from consumers.processing.processor import Limits
from consumers.processing.strategies.sql_transactions import SqlBatch
from orchestration.samples.balances import TOPIC, keep_balances

engine = create_engine(sys.argv[2])
broker = KafkaGroupMember(KafkaOptions(sys.argv[1]), TOPIC, sys.argv[3], "child")
with faults(engine, 0.02, random.Random(1)):
    keep_balances(broker, engine, "child", threading.Event(), Limits(), batch=SqlBatch(max_records=1))
"""


def test_members_that_are_killed_leave_balances_right(filled: str, sql_url: URL, tmp_path: Path) -> None:
    engine = create_engine(sql_url)
    for number, share in enumerate((0.2, 0.6)):
        # A group each, so that nobody waits for the session of the killed one; the database has the positions anyway.
        arguments = [filled, sql_url.render_as_string(hide_password=False), f"killed-{tmp_path.name}-{number}"]
        child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments])
        try:
            _until_counted(engine, share * COUNT, child)
        finally:
            child.kill()
            child.wait()
    done = run(filled, sql_url, tmp_path, "run")
    assert done.returncode == 0, done.stderr
    assert differences(engine, expected_balances(limit=COUNT, malformed=MALFORMED)) == []
    engine.dispose()


def _until_counted(engine: Engine, wanted: float, child: "subprocess.Popen[bytes]") -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + 60
    while True:
        if inspect(engine).has_table("balances"):
            with engine.connect() as connection:
                if (connection.execute(select(func.sum(BALANCES.c.transactions))).scalar() or 0) >= wanted:
                    return
        assert child.poll() is None and clock.monotonic() < deadline
        clock.sleep(0.01)
