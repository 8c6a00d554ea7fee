"""Fills a staged table, a table computed from it, and Dagster's storage for `benchmarks.scale`."""

from collections.abc import Sequence

import dagster as dg
import pyarrow as pa
from dagster._core.events import DagsterEvent, StepMaterializationData
from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from deltalake import CommitProperties, Transaction, write_deltalake
from sqlalchemy import func, select

from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.staging.log import METADATA_KEY, StagedCommit, Timings, WindowChange, commits
from consumers.staging.positions import position_id
from consumers.staging.schema import WINDOW, filled, staged_schema
from consumers.types import OffsetRange, TopicPartition
from orchestration.compute.job import Job
from orchestration.compute.output import INPUTS
from orchestration.compute.plan import plan
from orchestration.mirror_events import Held, window_event

PARTITIONS = 12
COMMITS = 10
_ROWS = 4


def stage(consumer: Consumer, windows: Sequence[str], first: int = 0) -> None:
    """One commit with a few rows in each of the windows; its offsets begin at `first` in every partition."""
    ends = first + _ROWS * len(windows)
    tps = [TopicPartition(consumer.config.topic, p) for p in range(PARTITIONS)]
    now = int(SystemClock().time() * 1000)
    commit = StagedCommit(
        commit_id=f"{first:08d}-of-the-benchmark",
        kind="batch",
        consumer=consumer.name,
        member="benchmark",
        ranges={tp: OffsetRange(first, ends) for tp in tps},
        rows=_ROWS * len(windows),
        windows={window: WindowChange(_ROWS, 2_000, 1) for window in windows},
        high=dict.fromkeys(tps, ends),
        timings=Timings(1.0, 0.1, 0.2, 0.05),
        times=dict.fromkeys(tps, now),
        schema_id="benchmark",
    )
    columns = {
        "id": list(range(first, ends)),
        "_topic": [consumer.config.topic] * (ends - first),
        "_partition": [0] * (ends - first),
        "_offset": list(range(first, ends)),
        WINDOW: [window for window in windows for _ in range(_ROWS)],
    }
    write_deltalake(
        consumer.staged,
        filled(pa.table(columns), staged_schema(consumer.config.columns)),
        mode="append",
        partition_by=[WINDOW],
        commit_properties=CommitProperties(
            custom_metadata={METADATA_KEY: commit.to_json()},
            app_transactions=[Transaction(position_id(consumer.name, tp), ends) for tp in tps],
        ),
    )


def compute(job: Job) -> None:
    """The job's output as if it had been run: every window of its inputs, with its fingerprint."""
    wanted = plan(job).fingerprints
    rows = {WINDOW: list(wanted), INPUTS: list(wanted.values()), "count": [_ROWS] * len(wanted)}
    write_deltalake(job.output, pa.table(rows), partition_by=[WINDOW, INPUTS])


def materialize(instance: dg.DagsterInstance, consumer: Consumer, each: int) -> int:
    """`each` events for every window of the table, the newest as the mirror would have written it; how many that are.

    Written as Dagster writes them, in the same rows of the same tables, but ten thousand in one transaction.
    """
    log = commits(consumer.staged)
    touched = [(window, commit) for commit in log for window in commit.windows]
    for age in range(each - 1, -1, -1):
        _store(instance, [_entry(consumer, window, commit, age) for window, commit in touched])
    return each * len(touched)


def _entry(consumer: Consumer, window: str, commit: StagedCommit, age: int) -> dg.EventLogEntry:
    event = window_event(consumer.name, [commit], window, Held(_ROWS, 1, 1))
    if age:
        event = event._replace(tags={"dagster/data_version": f"{commit.version}-older{age}"})
    return dg.EventLogEntry(  # type: ignore[no-untyped-call]
        error_info=None,
        level=20,
        user_message="",
        run_id=RUNLESS_RUN_ID,
        timestamp=SystemClock().time() - 3600 * (age + 1),
        job_name=RUNLESS_JOB_NAME,
        dagster_event=DagsterEvent(
            event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
            event_specific_data=StepMaterializationData(event),
            job_name=RUNLESS_JOB_NAME,
        ),
    )


def _store(instance: dg.DagsterInstance, entries: Sequence[dg.EventLogEntry]) -> None:
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    insert = storage.prepare_insert_event_batch(entries)
    with storage.run_connection(RUNLESS_RUN_ID) as connection:
        connection.execute(insert)
    with storage.index_transaction() as connection:
        connection.execute(insert)
        last = connection.execute(select(func.max(SqlEventLogStorageTable.c.id))).scalar_one()
        ids = list(range(last - len(entries) + 1, last + 1))
        storage._store_asset_event_tags(connection, entries, ids)
        storage._store_asset_event(connection, entries[-1], last)
