"""`weir kafka` as an operator sees it: errors are one line, help is light."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestration.cli import app
from orchestration.local.errors import LocalError


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


def test_an_error_is_one_line_and_exit_code_1() -> None:
    told = CliRunner().invoke(app, ["kafka", "produce", "flights"])
    assert told.exit_code == 1
    assert told.stderr.splitlines() == [
        "weir: no Kafka cluster runs: start one with `weir kafka up`, or name yours in KAFKA_BOOTSTRAP_SERVERS"
    ]
    assert told.stdout == ""


def test_debug_lets_the_error_through() -> None:
    told = CliRunner().invoke(app, ["--debug", "kafka", "produce", "flights"])
    assert isinstance(told.exception, LocalError)


def test_with_a_cluster_of_the_environment_up_says_which_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka.example:9092")
    told = CliRunner().invoke(app, ["kafka", "up"])
    assert (told.exit_code, told.stdout) == (
        0,
        "KAFKA_BOOTSTRAP_SERVERS is set: kafka.example:9092 is used, nothing was started\n",
    )
    assert not list(tmp_path.iterdir())


def test_status_without_a_cluster_is_no_success() -> None:
    told = CliRunner().invoke(app, ["kafka", "status"])
    assert told.exit_code == 1
    assert "weir kafka up" in told.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["fly"]).exit_code == 2


def test_help_names_every_command_without_importing_their_libraries() -> None:
    code = (
        "import sys\nfrom orchestration.cli import main\n"
        "sys.argv = ['weir', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'dagster', 'pyspark', 'pandas', 'confluent_kafka', 'deltalake'}\n"
        "print('IMPORTED', sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).parents[3]
    told = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "kafka" in told.stdout
    assert told.stdout.endswith("IMPORTED []\n")
