"""The job `replay_<name>`, as launched from Dagster: what the run's page and the assets say, and what it refuses."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consumers.config import Consumer
from consumers.staging.log import commits
from orchestration.mirror_events import dead_letters_key
from orchestration.operations.replay import replay_job
from tests.consumers.parts import DAY_MS, consumer
from tests.consumers.staging.rewriting import GOOD, Ingestion, rows, waiting

EMPTY, WORSE = b"{}", b"no json"


@pytest.fixture
def parts(tmp_path: Path) -> Consumer:
    """1 and 2 are valid by today's definition, 3 is not."""
    old = consumer(tmp_path, schema={"a": {"type": "long", "nullable": False}})
    next_day = DAY_MS + 86_400_000
    Ingestion(old).stage(GOOD, EMPTY, EMPTY, WORSE, stamps=[DAY_MS, DAY_MS, next_day, DAY_MS])
    return consumer(tmp_path, show_values=True)


def launch(instance: dg.DagsterInstance, parts: Consumer, **config: Any) -> dg.ExecuteInProcessResult:
    run_config = {"ops": {"replay_dead_letters_of_c": {"config": config}}}
    return replay_job(parts).execute_in_process(run_config=run_config, instance=instance, raise_on_error=False)


def output(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    metadata = next(iter(result.filter_events(lambda e: e.is_successful_output))).step_output_data.metadata
    return {name: [r.data for r in each.records] if name == "by_reason" else each.value for name, each in metadata.items()}


def test_the_run_says_what_was_fixed_by_reason(instance: dg.DagsterInstance, parts: Consumer) -> None:
    found = output(launch(instance, parts))
    assert (found["fixed"], found["still_invalid"], found["left_alone"], found["commits"]) == (2, 1, 0, 1)
    assert [(each["fixed"], each["still_invalid"]) for each in found["by_reason"]] == [(2, 0), (0, 1)]
    assert rows(parts) == [0, 1, 2] and waiting(parts) == [3]


def test_the_dead_letters_asset_shows_what_is_left_and_the_staged_asset_its_windows(
    instance: dg.DagsterInstance, parts: Consumer
) -> None:
    result = launch(instance, parts, why="fields may be missing", by="me")
    events = result.get_asset_materialization_events()
    found = {(e.asset_key.path[0], e.partition): e.materialization.metadata for e in events}
    assert {key for key in found if key[0] == "staged"} == {("staged", "2013-01-01"), ("staged", "2013-01-02")}
    left = found["dead_letters", None]
    assert (left["unresolved"].value, left["resolved_in_all"].value, left["resolved"].value) == (1, 2, 2)
    assert [record.data["example"] for record in left["reasons"].records] == ["0:3"]
    assert [record.data["value"] for record in left["samples"].records] == ["no json"]
    done = commits(parts.staged)[-1]
    assert (done.by, done.why, done.member) == ("me", "fields may be missing", result.run_id)


@pytest.mark.parametrize(
    ("config", "fixed"),
    [({"ids": ["0:1"]}, [0, 1]), ({"windows": ["2013-01-02"]}, [0, 2]), ({"reason": "json"}, [0]), ({"dry_run": True}, [0])],
)
def test_only_what_is_asked_for_is_staged(
    instance: dg.DagsterInstance, parts: Consumer, config: dict[str, Any], fixed: list[int]
) -> None:
    assert launch(instance, parts, **config).success
    assert rows(parts) == fixed


def test_a_dry_run_says_what_would_be_fixed_and_logs_no_event(instance: dg.DagsterInstance, parts: Consumer) -> None:
    result = launch(instance, parts, dry_run=True)
    assert output(result)["fixed"] == 2
    assert result.get_asset_materialization_events() == [] and waiting(parts) == [1, 2, 3]


def test_a_replay_in_vain_is_an_observation(instance: dg.DagsterInstance, parts: Consumer) -> None:
    result = launch(instance, parts, ids=["0:3"])
    assert result.get_asset_materialization_events() == []
    (seen,) = result.get_asset_observation_events()
    assert seen.asset_key == dead_letters_key("c")
    assert seen.asset_observation_data.asset_observation.metadata["unresolved"].value == 3


def test_ids_that_are_none_are_refused_before_anything_is_changed(instance: dg.DagsterInstance, parts: Consumer) -> None:
    assert not launch(instance, parts, ids=["0-3"]).success
    assert waiting(parts) == [1, 2, 3]
