"""quix-streams: a streaming frame from the topic into a batching sink that writes Delta, a checkpoint every 200,000 messages.

It has no sink for Delta of its own. At least once: offsets follow the sink's flush.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from quixstreams import Application
from quixstreams.sinks import BatchingSink, SinkBatch

from benchmarks.peers.task import Answer, Task

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("account", pa.string(), nullable=False),
        pa.field("amount_cents", pa.int64(), nullable=False),
        ("price", pa.float64()),
        pa.field("approved", pa.bool_(), nullable=False),
        pa.field("booked_at", pa.string(), nullable=False),
        ("note", pa.string()),
        ("city", pa.string()),
        pa.field("currency", pa.string(), nullable=False),
    ]
)


class DeltaSink(BatchingSink):  # type: ignore[misc]  # its package is not installed where types are checked
    """Appends what a checkpoint gathered to a Delta table."""

    def __init__(self, task: Task, answer: Answer) -> None:
        super().__init__()
        self._task, self._answer = task, answer

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Notes when the first record came."""
        self._answer.begin()
        self.add = super().add  # type: ignore[method-assign]
        super().add(*args, **kwargs)

    def write(self, batch: SinkBatch) -> None:
        """Only gather: all partitions go into one commit."""

    def flush(self) -> None:
        """One append for the whole checkpoint."""
        tables = [_table(batch) for batch in self._batches.values() if not batch.empty()]
        if tables:
            write_deltalake(self._task.table, pa.concat_tables(tables), mode="append", partition_by=["_window"])
            self._answer.end()
        self._batches.clear()


def _table(batch: SinkBatch) -> pa.Table:
    items = list(batch)
    table = pa.Table.from_pylist([item.value for item in items], schema=_SCHEMA)
    booked = pc.strptime(table["booked_at"], "%Y-%m-%dT%H:%M:%SZ", "us").cast(pa.timestamp("us", "UTC"))
    table = table.set_column(_SCHEMA.get_field_index("booked_at"), "booked_at", booked)
    stamps = pa.array([item.timestamp for item in items], pa.timestamp("ms", "UTC"))
    columns = {
        "_partition": pa.array([batch.partition] * len(items), pa.int32()),
        "_offset": pa.array([item.offset for item in items], pa.int64()),
        "_timestamp": stamps.cast(pa.timestamp("us", "UTC")),
        "_window": pc.strftime(stamps.cast(pa.timestamp("s", "UTC"), safe=False), "%Y-%m-%d-%H"),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def run(task: Task) -> Answer:
    """Until all records are committed."""
    answer = Answer(records=task.records, table=str(task.table))
    names = ("queued.max.messages.kbytes", "fetch.queue.backoff.ms", "isolation.level")
    app = Application(
        broker_address=task.bootstrap_servers,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        consumer_extra_config={name: task.client[name] for name in names},
        commit_every=task.batch_records,
        commit_interval=3600.0,
        loglevel="ERROR",
        state_dir=task.folder / "state",
        auto_create_topics=False,
    )
    app.dataframe(app.topic(task.topic, value_deserializer="json")).sink(DeltaSink(task, answer))
    app.run(count=task.records)
    return answer


if __name__ == "__main__":
    run(Task.given()).print()
