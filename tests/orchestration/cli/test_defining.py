"""The commands that help to define a consumer, on a project and an in-memory cluster of their own."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from orchestration.cli import app
from orchestration.proposal import connect
from orchestration.settings import Settings
from orchestration.testing import run_consumer

Weir = Callable[..., Result]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An empty project."""
    own = Settings(tmp_path / "home", tmp_path / "tables", tmp_path / "cache", None, tmp_path / "project")
    monkeypatch.setattr(Settings, "load", staticmethod(lambda: own))
    return own


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """A cluster whose topic `clicks` holds 200 records."""
    found = MemoryCluster()
    MemoryAdmin(found).create_topic("clicks", 2)
    producer = MemoryProducer(found)
    for i in range(200):
        producer.send("clicks", json.dumps({"click_id": i, "page": "home"}).encode(), partition=i % 2)
    producer.close()
    monkeypatch.setattr(connect, "reader", lambda topic, settings: (lambda: MemoryConsumer(found, topic), ""))
    return found


@pytest.fixture
def weir(settings: Settings, cluster: MemoryCluster) -> Weir:
    """Run a command."""
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def definition(settings: Settings) -> Path:
    return settings.project / "orchestration" / "defs" / "consumers" / "clicks" / "defs.yaml"


def test_a_new_consumer_is_proposed_tried_and_checked(weir: Weir, settings: Settings) -> None:
    made = weir("new", "consumer", "clicks")
    assert made.exit_code == 0 and "all 200 values fit this schema" in made.output
    tried = weir("try", "clicks", "--records", "10")
    assert tried.exit_code == 0 and "10 records of topic clicks: 10 rows, 0 dead letters" in tried.output
    assert weir("check").output == "clicks: no table yet\n"


def test_try_fails_when_every_record_is_rejected(weir: Weir, settings: Settings) -> None:
    weir("new", "consumer", "clicks")
    path = definition(settings)
    path.write_text(path.read_text().replace("page: {type: string", "page: {type: boolean"))
    tried = weir("try", "clicks")
    assert tried.exit_code == 1 and "Expected `bool`, got `str`" in tried.output and "offset 0:" in tried.output


def test_new_leaves_a_definition_that_is_there_as_it_is(weir: Weir, settings: Settings) -> None:
    weir("new", "consumer", "clicks")
    before = definition(settings).read_text()
    again = weir("new", "consumer", "clicks", "--plain")
    assert again.exit_code == 1 and "is there already" in again.output
    assert definition(settings).read_text() == before


def test_check_fails_when_a_table_would_have_to_be_rebuilt_and_says_how(weir: Weir, settings: Settings) -> None:
    weir("new", "consumer", "clicks")
    folder = settings.tables / "staged"
    run_consumer(definition(settings), [{"value": {"click_id": 1, "page": "home"}}], folder=folder)
    (folder / "staged").rename(folder / "clicks")
    path = definition(settings)
    path.write_text(path.read_text().replace("click_id: {type: long", "click_id: {type: string"))
    checked = weir("check", "clicks")
    assert checked.exit_code == 1 and "rebuild: column 'click_id' was long and is string" in checked.output
    assert "swap_clicks" in checked.output


def test_a_consumer_that_is_not_there_is_named(weir: Weir) -> None:
    for command in ("try", "check"):
        assert "there is no consumer 'nobody'" in weir(command, "nobody").output
