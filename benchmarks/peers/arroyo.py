"""sentry-arroyo, put together as its documentation does: a batch step, one Arrow write a batch, committed offsets.

The JSON of a whole batch is read by Arrow at once, the quickest way there is. At least once: offsets follow the Delta commit.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import IMMEDIATE
from arroyo.processing.processor import StreamProcessor
from arroyo.processing.strategies import BatchStep, CommitOffsets, ProcessingStrategy, ProcessingStrategyFactory, RunTask
from arroyo.types import BrokerValue, Commit, Message, Partition, Topic
from deltalake import write_deltalake

from benchmarks.peers.task import Answer, Task

Batch = Sequence[BrokerValue[KafkaPayload]]

_UTC = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("account", pa.string(), nullable=False),
        pa.field("amount_cents", pa.int64(), nullable=False),
        ("price", pa.float64()),
        pa.field("approved", pa.bool_(), nullable=False),
        pa.field("booked_at", _UTC, nullable=False),
        ("note", pa.string()),
        ("city", pa.string()),
        pa.field("currency", pa.string(), nullable=False),
    ]
)


class First(BatchStep[KafkaPayload]):
    """Notes when the first record came."""

    answer: Answer

    def submit(self, message: Any) -> None:
        """As the batch step does."""
        if not self.answer.began:
            self.answer.begin()
        super().submit(message)


class Last(CommitOffsets):
    """Notes when a batch was committed, and ends the processor with the last one."""

    def __init__(self, commit: Commit, factory: "Factory") -> None:
        super().__init__(commit)
        self._factory = factory

    def submit(self, message: Any) -> None:
        """As the commit step does."""
        super().submit(message)
        self._factory.answer.end()
        if self._factory.written >= self._factory.task.records:
            self._factory.stop()


class Factory(ProcessingStrategyFactory[KafkaPayload]):
    """The chain: gather, write, commit."""

    processor: StreamProcessor[KafkaPayload]

    def __init__(self, task: Task, answer: Answer) -> None:
        self.task, self.answer, self.written = task, answer, 0

    def stop(self) -> None:
        """End the processor."""
        self.processor.signal_shutdown()

    def create_with_partitions(self, commit: Commit, partitions: Mapping[Partition, int]) -> ProcessingStrategy[KafkaPayload]:
        """One chain for all partitions."""
        write: RunTask[Any, int] = RunTask(self._write, Last(commit, self))
        first = First(self.task.batch_records, 10.0, write)
        first.answer = self.answer
        return first

    def _write(self, message: Message[Batch]) -> int:
        table = _table(message.payload)
        write_deltalake(self.task.table, table, mode="append", partition_by=["_window"])
        rows: int = table.num_rows
        self.written += rows
        return rows


def _table(batch: Batch) -> pa.Table:
    values = io.BytesIO(b"\n".join(value.payload.value for value in batch))
    options = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
    table = pj.read_json(values, parse_options=options).cast(_SCHEMA)
    if table.num_rows != len(batch):
        raise SystemExit(f"{len(batch)} records became {table.num_rows} rows")
    places = [value.partition.index for value in batch], [value.offset for value in batch]
    stamps = pa.array([value.timestamp for value in batch], pa.timestamp("ms", "UTC"))
    columns = {
        "_partition": pa.array(places[0], pa.int32()),
        "_offset": pa.array(places[1], pa.int64()),
        "_timestamp": stamps.cast(_UTC),
        "_window": pc.strftime(stamps.cast(pa.timestamp("s", "UTC"), safe=False), "%Y-%m-%d-%H"),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def run(task: Task) -> Answer:
    """Until all records are committed."""
    answer = Answer(records=task.records, table=str(task.table))
    consumer = KafkaConsumer(
        build_kafka_consumer_configuration(
            {},
            task.group,
            "earliest",
            int(task.client["queued.max.messages.kbytes"]),
            100_000,
            [task.bootstrap_servers],
            {name: task.client[name] for name in ("fetch.queue.backoff.ms", "isolation.level")},
        )
    )
    factory = Factory(task, answer)
    factory.processor = StreamProcessor(consumer, Topic(task.topic), factory, IMMEDIATE)
    factory.processor.run()
    return answer


if __name__ == "__main__":
    run(Task.given()).print()
