"""Dagster's SQLite event log that stores many events in one transaction, and a way to log many materializations together.

Dagster's own opens two databases for every event. A run over a year of hours has 17,520 of them: one that says that a window is
planned, and one that says that it is there.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster._core.events import (
    DagsterEvent,
    DagsterEventBatchMetadata,
    DagsterEventType,
    StepMaterializationData,
)
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._serdes import ConfigurableClassData

from orchestration.local.errors import LocalError

BATCHES = {"DAGSTER_EVENT_BATCH_SIZE": "500"}
"""The environment in which Dagster stores events in batches, where its storage can."""

SETTINGS = """
# Dagster's own SQLite files; a batch of events is one transaction. PostgreSQL's storage does that by itself.
event_log_storage:
  module: orchestration.event_log
  class: BatchingEventLog
"""
"""What `dagster.yaml` says for it."""

_TOGETHER = {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_MATERIALIZATION_PLANNED}


class BatchingEventLog(SqliteEventLogStorage):
    """In the same databases as Dagster's own: the one may take the other's place at any time."""

    @classmethod
    def config_type(cls) -> Any:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "BatchingEventLog":
        """Below DAGSTER_HOME, where Dagster keeps its own by default. Raises `LocalError` where that is not set."""
        if not (home := os.environ.get("DAGSTER_HOME")):
            raise LocalError("orchestration.event_log.BatchingEventLog keeps events below DAGSTER_HOME: set that to a folder")
        return cls(str(Path(home) / "history" / "runs"), inst_data)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Materializations, and plans of them, in one transaction a run and one for all; other events as ever."""
        by_run: dict[str, list[EventLogEntry]] = {}
        for event in events:
            if event.dagster_event_type in _TOGETHER:
                by_run.setdefault(event.run_id, []).append(event)
            else:
                self.store_event(event)
        for run_id, together in by_run.items():
            self._store_together(run_id, together)

    def _store_together(self, run_id: str, events: Sequence[EventLogEntry]) -> None:
        rows = [self._event_to_row(event) for event in events]
        insert, id_ = SqlEventLogStorageTable.insert(), SqlEventLogStorageTable.c.id
        with self.run_connection(run_id) as connection:
            connection.execute(insert, rows)
        with self.index_transaction() as connection:
            ids = connection.execute(insert.returning(id_, sort_by_parameter_order=True), rows).scalars().all()
            self._store_asset_event_tags(connection, events, ids)
            for number in _last_of_each(events).values():
                self._store_asset_event(connection, events[number], ids[number])


def _last_of_each(events: Sequence[EventLogEntry]) -> Mapping[object, int]:
    """Per asset and kind the place of its newest event, which is all that Dagster's table of assets holds."""
    return {(event.dagster_event_type, event.get_dagster_event().asset_key): number for number, event in enumerate(events)}


@contextmanager
def instance_of(home: Path) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance whose `dagster.yaml` lies in this folder."""
    before = os.environ.get("DAGSTER_HOME")
    os.environ["DAGSTER_HOME"] = str(home)
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance
    finally:
        if before is None:
            del os.environ["DAGSTER_HOME"]
        else:
            os.environ["DAGSTER_HOME"] = before


def log_together(context: dg.AssetExecutionContext, materializations: Sequence[dg.AssetMaterialization]) -> None:
    """Tell Dagster's storage of them as `context.log_event` does, in batches, and without a line of the run's log for each."""
    step, batch, last = context.get_step_execution_context(), uuid4().hex, len(materializations) - 1
    for number, materialization in enumerate(materializations):
        event = DagsterEvent(
            event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name=step.job_name,
            step_handle=step.step.handle,
            node_handle=step.step.node_handle,
            step_kind_value=step.step.kind.value,
            logging_tags=step.event_tags,
            event_specific_data=StepMaterializationData(materialization),
            message=f"Materialized {materialization.partition}.",
        )
        together = DagsterEventBatchMetadata(batch, is_end=number == last)
        context.instance.report_dagster_event(event, context.run.run_id, logging.DEBUG, together)
