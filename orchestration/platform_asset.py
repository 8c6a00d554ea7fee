"""The asset `platform/consumers`: the table of all consumers that `weir status` prints, and what Dagster knows of each."""

import hashlib
import json
from collections.abc import Sequence

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorState, SensorInstigatorData

from consumers.clock import Clock
from consumers.config import Consumer
from orchestration.completeness import valid_through
from orchestration.mirror_events import DATA_VERSION, table
from orchestration.sensors.runs import records_of, runs_of
from orchestration.sensors.waiting import recall
from orchestration.status import COLUMNS, ConsumerStatus, Running, row

KEY = dg.AssetKey(["platform", "consumers"])
_TIME_LAG, _COMPLETE = (list(COLUMNS).index(name) for name in ("time lag", "complete through"))
_TO_THE_HOUR = len("2026-01-01 00")


def consumers_asset() -> dg.AssetSpec:
    """The asset. The sensor `observe_topics` writes it, at most once a minute, when the table changed."""
    return dg.AssetSpec(
        KEY,
        description="All consumers on one page: members, lag, how far each is complete, its table, and what is wrong.",
        group_name="platform",
        kinds={"table"},
    )


def running(instance: dg.DagsterInstance, consumers: Sequence[Consumer], clock: Clock) -> dict[str, Running]:
    """What Dagster knows of each consumer, by name."""
    # An instance in memory has no storage for sensors.
    states = instance.all_instigator_state() if instance.schedule_storage is not None else ()
    sensors = {state.instigator_name: state for state in states}
    return {consumer.name: _running(instance, consumer, sensors.get(f"keep_{consumer.name}"), clock) for consumer in consumers}


def _running(instance: dg.DagsterInstance, consumer: Consumer, sensor: InstigatorState | None, clock: Clock) -> Running:
    data = sensor.instigator_data if sensor is not None else None
    switched_on = data.last_sensor_start_timestamp if isinstance(data, SensorInstigatorData) else None
    records = records_of(instance, consumer)
    runs = runs_of(instance, consumer, records, frozenset(), switched_on or 0.0, clock)
    return Running(
        members=len(runs.members),
        wanted=consumer.config.members,
        on=sensor.is_running if sensor is not None else consumer.config.autostart,
        time_lag=recall(instance, consumer.name).time_lag,
        valid_through=valid_through(instance, consumer.name),
        problem=runs.paused,
    )


def consumers_table(found: Sequence[ConsumerStatus]) -> tuple[dg.AssetMaterialization, str]:
    """The event that shows the table, and what changes exactly when the event should be written again."""
    rows = [row(status) for status in found]
    problems = [problem for status in found for problem in status.problems]
    state = hashlib.sha256(json.dumps([[_lasting(each) for each in rows], problems]).encode()).hexdigest()[:16]
    event = dg.AssetMaterialization(
        asset_key=KEY,
        metadata={
            "consumers": table(COLUMNS, rows),
            "lag": sum(status.lag for status in found),
            "dead_letters": sum(status.unresolved for status in found),
            "problems": dg.MetadataValue.md("\n".join(f"- {problem}" for problem in problems) or "none"),
        },
        tags={DATA_VERSION: state},
    )
    return event, state


def _lasting(cells: Sequence[str | int]) -> list[str | int]:
    """A line without what passes by itself while nothing happens."""
    through = str(cells[_COMPLETE])[:_TO_THE_HOUR]
    return [*cells[:_TIME_LAG], through, *cells[_COMPLETE + 1 :]]
