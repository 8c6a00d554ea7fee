"""The jobs that build a shadow and make it the table."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consumers.brokers.memory import MemoryConsumer
from orchestration.operations import shadow as module
from orchestration.operations.shadow import shadow_job
from orchestration.operations.swap import swap_job
from orchestration.resources.kafka import KafkaResource
from tests.consumers.processing.backfill.topic import FIRST, Topic


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic(tmp_path, window={"every": "day", "first": "2013-01-01"})
    made.produce(0, b'{"a": 1, "b": 7}')
    made.stage()
    made.defined(schema={"a": {"type": "long", "path": "b"}}, window={"every": "day", "first": "2013-01-01"})
    monkeypatch.setattr(module, "reader", lambda *_: MemoryConsumer(made.cluster, "t"))
    return made


def run(job: dg.JobDefinition, op: str, instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    resources = {"kafka": KafkaResource(bootstrap_servers="localhost:1")} if op.startswith("cast") else {}
    run_config = {"ops": {op: {"config": config}}}
    return job.execute_in_process(run_config=run_config, resources=resources, instance=instance, raise_on_error=False)


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = [each for each in result.all_events if each.event_type_value == "STEP_OUTPUT"]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def test_a_shadow_shows_its_difference_and_a_swap_makes_it_the_table(topic: Topic) -> None:
    instance = dg.DagsterInstance.ephemeral()
    built = run(shadow_job(topic.consumer), "cast_shadow_of_c", instance, id="x")
    assert {name: metadata(built)[name] for name in ("id", "changed", "added", "removed")} == {
        "id": "x",
        "changed": 2,
        "added": 0,
        "removed": 0,
    }
    assert topic.rows(FIRST, "a") == [0, 1]
    swapped = run(swap_job(topic.consumer), "swap_shadow_of_c", instance, id="x", confirm="c")
    assert metadata(swapped) == {"commits": 1, "rows": 2, "rows_removed": 2}
    assert topic.rows(FIRST, "_offset", "a") == [(0, None), (1, 7)]


def test_a_swap_asks_for_the_consumers_name(topic: Topic) -> None:
    refused = run(swap_job(topic.consumer), "swap_shadow_of_c", dg.DagsterInstance.ephemeral(), id="x", confirm="d")
    assert "`confirm` must be 'c', not 'd'. Nothing was changed" in str(refused.failure_data_for_node("swap_shadow_of_c"))
