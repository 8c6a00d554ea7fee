"""One measured run, in a process of its own: `python -m benchmarks.contestant bare|weir BOOTSTRAP TOPIC RECORDS FOLDER`.

Prints one line of JSON: records, seconds from the first record in hand to the end (for us: to the last Delta commit), CPU
seconds, and the peak of resident memory in MB.
"""

import json
import resource
import sys
import threading
import uuid
from pathlib import Path

import confluent_kafka as ck

from benchmarks.topic import DEFINITION
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.membership import GroupSettings
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.processing.subscription import POLL_RECORDS
from consumers.types import RecordBatch

_CLOCK = SystemClock()


def bare(bootstrap_servers: str, topic: str, records: int, _folder: Path) -> float:
    """Only `Consumer.consume`, with the client settings that we use; seconds."""
    settings = KafkaOptions(bootstrap_servers).member(f"bare-{uuid.uuid4()}", "bare", GroupSettings())
    consumer = ck.Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen, began = 0, 0.0
    while seen < records:
        messages = consumer.consume(POLL_RECORDS, 1.0)
        if messages and not began:
            began = _CLOCK.monotonic()
        seen += sum(1 for m in messages if m.error() is None)
    seconds = _CLOCK.monotonic() - began
    consumer.close()
    return seconds


class _Timed(KafkaGroupMember):
    """Notes when the first records came."""

    began = 0.0

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """As the group member does."""
        batch = super().poll(max_records, timeout)
        if batch is not None and not self.began:
            self.began = _CLOCK.monotonic()
        return batch


def weir(bootstrap_servers: str, topic: str, records: int, folder: Path) -> float:
    """To committed, typed, checked Delta; seconds."""
    name = "bench"
    consumer = Consumer(
        name=name,
        config=DEFINITION.model_copy(update={"only_topic": topic}),
        staged=folder / "staged",
        dead_letters=folder / "dead_letters",
    )
    broker = _Timed(KafkaOptions(bootstrap_servers), topic, f"weir-{uuid.uuid4()}", name)
    ended = [0.0]
    result = stage_from(
        broker,
        consumer,
        name,
        threading.Event(),
        Limits(until_caught_up=True),
        lambda _commit: ended.__setitem__(0, _CLOCK.monotonic()),
        Surroundings(_CLOCK),
    )
    if (result.rows, result.dead_letters) != (records, 0):
        raise SystemExit(f"expected {records} rows, got {result}")
    return ended[0] - broker.began


def main() -> None:
    """Run one contestant and print its figures."""
    which, bootstrap_servers, topic, records, folder = sys.argv[1:6]
    seconds = {"bare": bare, "weir": weir}[which](bootstrap_servers, topic, int(records), Path(folder))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "records": int(records),
                "seconds": seconds,
                "cpu_seconds": used.ru_utime + used.ru_stime,
                "peak_mb": used.ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
