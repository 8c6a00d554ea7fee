"""dlt's Kafka source, made by `dlt init`, into its file system destination as a Delta table.

The function that makes a row of a message is ours, as its documentation invites: the default one keeps the JSON as text. dlt
keeps the offsets in the pipeline's state, which travels with the load. Rows are appended: a load that was cut off and is done
again can append twice.
"""

import json
import os
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from benchmarks.peers.task import REQUIRED, Answer, Task

_TYPES = {
    "id": "bigint",
    "account": "text",
    "amount_cents": "bigint",
    "price": "double",
    "approved": "bool",
    "booked_at": "timestamp",
    "note": "text",
    "city": "text",
    "currency": "text",
}


def run(task: Task) -> Answer:
    """Until the pipeline has loaded all that the topic held."""
    os.environ |= {"RUNTIME__LOG_LEVEL": "ERROR", "RUNTIME__DLTHUB_TELEMETRY": "false"}
    import dlt
    from kafka import kafka_consumer  # of the project that `dlt init` made

    answer = Answer(records=task.records)

    def row(message: ck.Message) -> dict[str, Any]:
        answer.begin()
        value = message.value()
        assert value is not None
        place = {"topic": "bench", "partition": message.partition(), "offset": message.offset(), "ts": message.timestamp()[1]}
        return {**json.loads(value), "_kafka": place}

    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=str(task.folder / "pipelines"),
        destination=dlt.destinations.filesystem(bucket_url=(task.folder / "lake").as_uri()),
        dataset_name="data",
    )
    consumer = ck.Consumer({**task.client, "group.id": task.group, "auto.offset.reset": "earliest"})
    source = kafka_consumer(task.topic, credentials=consumer, msg_processor=row, batch_size=10_000)
    hints = {name: {"data_type": kind, "nullable": name not in REQUIRED} for name, kind in _TYPES.items()}
    pipeline.run(source.apply_hints(columns=hints), table_format="delta").raise_on_failed_jobs()
    answer.end()
    answer.table = str(_table(task.folder / "lake"))
    return answer


def _table(lake: Path) -> Path:
    found = [log.parent for log in lake.rglob("_delta_log") if not log.parent.name.startswith("_dlt")]
    if len(found) != 1:
        raise SystemExit(f"dlt wrote {len(found)} tables: {', '.join(map(str, found))}")
    return found[0]


if __name__ == "__main__":
    run(Task.given()).print()
