"""A loop as people write it: consume, `json.loads`, a pandas frame, an append to Delta, then the group's offsets.

At least once: a crash between the append and the commit of the offsets repeats the batch.
"""

import json
from typing import Any

import confluent_kafka as ck
import pandas as pd
from deltalake import write_deltalake

from benchmarks.peers.task import FIELDS, REQUIRED, Answer, Task

_TYPES = {"id": "int64", "account": "string", "amount_cents": "int64", "price": "float64", "approved": "bool"}
_TEXTS = {"note": "string", "city": "string", "currency": "string"}


def run(task: Task) -> Answer:
    """Until all records are committed."""
    answer = Answer(records=task.records, table=str(task.table))
    consumer = ck.Consumer({**task.client, "group.id": task.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([task.topic])
    rows: list[dict[str, Any]] = []
    seen = 0
    while seen < task.records:
        messages = consumer.consume(min(10_000, task.records - seen), 1.0)
        if messages:
            answer.begin()
        rows.extend(row for message in messages if (row := _row(message)) is not None)
        seen += len(messages)
        if len(rows) >= task.batch_records or (rows and seen >= task.records):
            _write(task, rows)
            consumer.commit(asynchronous=False)
            answer.end()
            rows = []
    consumer.close()
    return answer


def _row(message: ck.Message) -> dict[str, Any] | None:
    value = message.value()
    if message.error() is not None or value is None:
        raise SystemExit(f"a message without a value: {message.error()}")
    try:
        row: dict[str, Any] = json.loads(value)
    except ValueError:
        return None
    row |= {"_partition": message.partition(), "_offset": message.offset(), "_timestamp": message.timestamp()[1]}
    return row


def _write(task: Task, rows: list[dict[str, Any]]) -> None:
    frame = pd.DataFrame(rows, columns=[*FIELDS, "_partition", "_offset", "_timestamp"])
    frame = frame.dropna(subset=list(REQUIRED)).astype(_TYPES | _TEXTS)
    frame["booked_at"] = pd.to_datetime(frame["booked_at"], utc=True, format="ISO8601")
    frame["_timestamp"] = pd.to_datetime(frame["_timestamp"], utc=True, unit="ms")
    frame["_window"] = frame["_timestamp"].dt.strftime("%Y-%m-%d-%H")
    write_deltalake(task.table, frame, mode="append", partition_by=["_window"])


if __name__ == "__main__":
    run(Task.given()).print()
