"""One measured run, in a process of its own: `python -m benchmarks.transformers WHICH BOOTSTRAP SOURCE TARGET RECORDS KEPT`.

Every contestant keeps the approved records, changes their currency, and writes them to the target with the key that they had,
idempotently and with `acks=all`. The time runs from the first record in hand until the last output is acknowledged; with us, also
until the positions are committed.
"""

import sys
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka import KafkaProducer as ArroyoProducer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration, build_kafka_producer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing.processor import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, FilterStep, ProcessingStrategyFactory, RunTask
from arroyo.processing.strategies import Produce as ArroyoProduce
from arroyo.types import FilteredPayload, Topic

from benchmarks.rounds import Stopwatch
from benchmarks.topic import values
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.brokers.producer_settings import DEFAULTS
from consumers.processing.context import Context
from consumers.processing.group_positions import GroupPositions
from consumers.processing.processor import Limits
from consumers.processing.run import run
from consumers.processing.strategies.commit_positions import CommitPositions
from consumers.processing.strategies.each import Record, each_kept, each_mapped
from consumers.processing.strategies.filter import Filter
from consumers.processing.strategies.map import Map
from consumers.processing.strategies.produce import Produce
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.subscription import Subscription

_KEPT = b'"approved":true'
_BEFORE, _AFTER = b'"currency":"EUR"', b'"currency":"CHF"'
_CLIENT = {"queued.max.messages.kbytes": 64 * 1024, "fetch.queue.backoff.ms": 5, "isolation.level": "read_committed"}
"""The consumer settings that `KafkaOptions` has."""


def _kept(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.match_substring(batch["value"], _KEPT.decode())


def _mapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    changed = pc.replace_substring(batch["value"], _BEFORE.decode(), _AFTER.decode())
    return pa.RecordBatch.from_arrays([changed, batch["key"]], ["value", "key"])


def _record_kept(record: Record) -> bool:
    return record.value is not None and _KEPT in record.value


def _record_mapped(record: Record) -> bytes | None:
    return record.value and record.value.replace(_BEFORE, _AFTER)


def _without_place(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["value", "key"])


def columns(after: Strategy[Any]) -> Strategy[Any]:
    """Filter and map on columns."""
    return Filter(_kept, Map(_mapped, after))


def each_record(after: Strategy[Any]) -> Strategy[Any]:
    """Filter and map by a Python function per record."""
    return Filter(each_kept(_record_kept), Map(each_mapped(_record_mapped), Map(_without_place, after)))


def weir(chain: Callable[[Strategy[Any]], Strategy[Any]], servers: str, source: str, target: str, _expected: int) -> Stopwatch:
    """Our engine."""
    options, watch = KafkaOptions(servers), Stopwatch()
    member = KafkaGroupMember(options, source, f"weir-{uuid.uuid4()}", "weir")
    poll = member.poll
    began = [False]

    def timed(max_records: int, timeout: float) -> Any:
        batch = poll(max_records, timeout)
        if batch is not None and not began[0]:
            watch.start()
            began[0] = True
        return batch

    member.poll = timed  # type: ignore[method-assign]

    def build(context: Context) -> Strategy[Any]:
        def commit(ranges: Mapping[Any, Any]) -> None:
            context.commit(ranges)
            watch.stop()

        return chain(Produce(producer, target, CommitPositions(commit), around=context.around))

    with KafkaProducer(options) as producer:
        run(Subscription("bench", source), member, GroupPositions(member), build, limits=Limits(until_caught_up=True))
    member.close()
    return watch


def arroyo(servers: str, source: str, target: str, expected: int) -> Stopwatch:
    """Arroyo, put together as its documentation does, with our client settings and its cheaper futures."""
    watch, left = Stopwatch(), [expected]
    producer_settings = {**DEFAULTS, "enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
    consumer = KafkaConsumer(
        build_kafka_consumer_configuration(
            {}, f"arroyo-{uuid.uuid4()}", "earliest", 64 * 1024, 100_000, [servers], _CLIENT, enable_auto_commit=False
        )
    )
    producer = ArroyoProducer(build_kafka_producer_configuration(producer_settings, [servers]), use_simple_futures=True)

    class First(FilterStep[Any]):
        """Notes when the first record came."""

        def submit(self, message: Any) -> None:
            if left[0] == expected and not self.began:
                watch.start()
                self.began = True
            super().submit(message)

        began = False

    class Last(CommitOffsets):
        """Notes when the last output was acknowledged."""

        def submit(self, message: Any) -> None:
            super().submit(message)
            if not isinstance(message.payload, FilteredPayload):
                left[0] -= 1
                if not left[0]:
                    watch.stop()
                    processor.signal_shutdown()

    class Factory(ProcessingStrategyFactory[KafkaPayload]):
        """The chain."""

        def create_with_partitions(self, commit: Any, partitions: Any) -> Any:
            produce = ArroyoProduce(producer, Topic(target), Last(commit))
            return First(_message_kept, RunTask(_message_mapped, produce), commit_policy=ONCE_PER_SECOND)

    processor = StreamProcessor(consumer, Topic(source), Factory(), ONCE_PER_SECOND)
    processor.run()
    producer.close().result()
    return watch


def _message_kept(message: Any) -> bool:
    return _KEPT in message.payload.value


def _message_mapped(message: Any) -> Any:
    payload = message.payload
    return KafkaPayload(payload.key, payload.value.replace(_BEFORE, _AFTER), payload.headers)


CONTESTANTS: dict[str, Callable[[str, str, str, int], Stopwatch]] = {
    "arroyo": arroyo,
    "columns": partial(weir, columns),
    "each record": partial(weir, each_record),
}


def expected_of(records: int) -> int:
    """How many of so many records are kept."""
    return sum(_KEPT in value for value in values(records))


def main() -> None:
    """Run one contestant and print its figures."""
    which, servers, source, target, records, expected = sys.argv[1:7]
    CONTESTANTS[which](servers, source, target, int(expected)).print(int(records))


if __name__ == "__main__":
    main()
