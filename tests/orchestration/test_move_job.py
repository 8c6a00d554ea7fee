"""The job that moves positions: it shows first, needs the name typed, and tells Dagster what it did."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from orchestration import mirror
from orchestration.mirror_events import staged_key
from orchestration.operations import move as module
from orchestration.operations.move import move_job
from orchestration.resources.kafka import KafkaResource
from tests.consumers.world import P0, P1, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    made.catch_up()
    monkeypatch.setattr(module, "admin", lambda options: made.admin)
    return made


def run(world: World, instance: dg.DagsterInstance, tags: Any = None, **config: Any) -> dg.ExecuteInProcessResult:
    return move_job(world.parts).execute_in_process(
        run_config={"ops": {"set_positions_of_c": {"config": {"why": "a test", **config}}}},
        resources={"kafka": KafkaResource(bootstrap_servers="memory:0")},
        instance=instance,
        tags=tags,
        raise_on_error=False,
    )


def told(result: dg.ExecuteInProcessResult) -> Any:
    [event] = [e for e in result.all_node_events if e.event_type_value == "STEP_OUTPUT"]
    return {name: getattr(value, "value", value) for name, value in event.step_output_data.metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    [event] = [e for e in result.all_node_events if e.is_step_failure]
    error = event.step_failure_data.error
    return str((error.cause or error).message)


def test_by_default_the_job_shows_what_it_would_do_and_changes_nothing(world: World, instance: dg.DagsterInstance) -> None:
    version = DeltaTable(world.parts.staged).version()
    shown = told(run(world, instance, to="offsets", offsets={"0": 5, "1": 8}))
    assert [dict(record.data) for record in shown["plan"].records] == [
        {"partition": "t/0", "from": 10, "to": 5, "skipped": 0, "read_again": 5},
        {"partition": "t/1", "from": 10, "to": 8, "skipped": 0, "read_again": 2},
    ]
    assert (shown["offsets_to_read_again"], shown["skipped_offsets"], shown["rows_to_remove"]) == (7, 0, 6)
    assert DeltaTable(world.parts.staged).version() == version


def test_the_job_moves_when_the_name_is_typed_and_tells_who_when_and_why(world: World, instance: dg.DagsterInstance) -> None:
    result = run(world, instance, {"user": "ann"}, to="earliest", partitions=[0], dry_run=False, confirm="c")
    assert told(result)["moved"] is True
    assert world.positions == {P0: 0, P1: 10}
    [record] = instance.fetch_observations(staged_key("c"), limit=10).records
    seen = record.asset_observation
    assert seen is not None
    assert (seen.metadata["by"].value, seen.metadata["why"].value, seen.metadata["moved_offsets"].value) == ("ann", "a test", 10)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"to": "earliest", "dry_run": False}, "`confirm` must be the consumer's name, c"),
        ({"to": "earliest", "dry_run": False, "confirm": "C"}, "`confirm` must be the consumer's name, c"),
        ({"to": "2026-01-31T00:00:00"}, "needs an offset, such as Z"),
        ({"to": "yesterday"}, "`to` is earliest, latest, offsets, or a time"),
        ({"to": "offsets"}, "`to: offsets` needs `offsets`"),
        ({"to": "latest", "offsets": {"0": 1}}, "`to: offsets` needs `offsets`"),
        ({"to": "offsets", "offsets": {"zero": 1}}, "partitions are numbers, not zero"),
        ({"to": "offsets", "offsets": {"0": 99}}, "this would be refused: t/0: offset 99 is past the end"),
    ],
)
def test_what_is_not_clear_is_refused_and_nothing_moves(
    world: World, instance: dg.DagsterInstance, config: dict[str, Any], why: str
) -> None:
    version = DeltaTable(world.parts.staged).version()
    assert why in failure(run(world, instance, **config))
    assert DeltaTable(world.parts.staged).version() == version


def test_the_mirror_does_not_tell_of_the_same_move_twice(world: World, instance: dg.DagsterInstance) -> None:
    run(world, instance, to="earliest", dry_run=False, confirm="c")
    world.clock.advance(3600)
    mirror.distrust(instance, world.parts)
    mirror.catch_up(instance, world.parts, instance.report_runless_asset_event, world.clock)
    assert len(instance.fetch_observations(staged_key("c"), limit=10).records) == 1
