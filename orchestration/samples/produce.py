"""Fills the sample topics: all at once, at a rate, or as a live replay in order of time."""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.clock import Clock, SystemClock
from consumers.errors import BrokerError
from orchestration.local.errors import LocalError
from orchestration.samples.records import (
    SAMPLES,
    Record,
    Sample,
    expected_balances,
    malformed_rows,
    records,
    sample,
)
from orchestration.samples.sources import SEED, flights_frame, transactions_frame, weather_frame
from orchestration.samples.topics import create_topics

__all__ = [
    "SAMPLES",
    "SEED",
    "Produced",
    "Sample",
    "create_topics",
    "expected_balances",
    "flights_frame",
    "malformed_rows",
    "produce",
    "records",
    "replay",
    "sample",
    "transactions_frame",
    "weather_frame",
]

_CHUNK = 2_000
_STEPS_PER_SECOND = 10
_CLOSE_SECONDS = 120.0


@dataclass(frozen=True)
class Produced:
    """What a topic was given: `records` in all, of which `malformed` are broken on purpose, and `failed` (0
    or an error).
    """

    topic: str
    records: int
    malformed: int
    failed: int


def produce(
    topic: str,
    bootstrap_servers: str,
    *,
    malformed: float = 0.0,
    seed: int = SEED,
    limit: int | None = None,
    rate: float | None = None,
    recreate: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    clock: Clock | None = None,
) -> Produced:
    """Write a sample topic's records, in order of time, after making the topic when it is missing.

    `malformed` is the share (0 to 1) of broken records, in the place of good ones; `malformed_rows` says
    which. `limit` takes the first ones only, `rate` is in records a second, `progress` is told how many of
    how many are queued. Raises LocalError when any record was not delivered.
    """
    clock = clock or SystemClock()
    chosen = sample(topic)
    frame = chosen.frame(seed)[:limit]
    broken = malformed_rows(len(frame), malformed, seed)
    create_topics(bootstrap_servers, [chosen], recreate=recreate, clock=clock)
    try:
        with KafkaProducer(KafkaOptions(bootstrap_servers)) as producer:
            for done in _send(producer, topic, records(chosen, frame, broken, seed), rate, clock):
                progress(done, len(frame))
            report = producer.close(_CLOSE_SECONDS)
    except BrokerError as error:
        raise LocalError(f"topic {topic}: {error}") from error
    return Produced(topic, report.delivered, int(broken.sum()), report.failed)


def replay(
    bootstrap_servers: str,
    *,
    rate: float | None,
    topic: str = "flights",
    start: int = 0,
    limit: int | None = None,
    clock: Clock | None = None,
) -> Generator[int, None, None]:
    """Write a topic's records from the `start`-th to before the `limit`-th, in order of time, `rate` a second;
    yields how many were sent so far.

    Without a rate, as fast as possible. Ends with the data. Closing the generator earlier waits for what was
    sent. Raises LocalError when a record fails.
    """
    clock = clock or SystemClock()
    chosen = sample(topic)
    frame = chosen.frame(SEED)[start:limit]
    create_topics(bootstrap_servers, [chosen], clock=clock)
    producer = KafkaProducer(KafkaOptions(bootstrap_servers))
    try:
        yield from _send(producer, topic, records(chosen, frame, malformed_rows(len(frame), 0.0), SEED), rate, clock)
    finally:
        try:
            producer.close(_CLOSE_SECONDS)
        except BrokerError as error:
            raise LocalError(f"topic {topic}: {error}") from error


def _send(producer: KafkaProducer, topic: str, rows: Iterable[Record], rate: float | None, clock: Clock) -> Iterator[int]:
    """Queue the records in chunks, each when it is due; yields the number queued so far."""
    if rate is not None and rate <= 0:
        raise LocalError(f"the rate is a number of records a second above 0, not {rate}")
    began, done, waiting = clock.monotonic(), 0, iter(rows)
    size = _CHUNK if rate is None else max(1, min(_CHUNK, int(rate / _STEPS_PER_SECOND)))
    while chunk := list(islice(waiting, size)):
        for key, value, timestamp in chunk:
            producer.send(topic, value, key, timestamp_ms=timestamp)
        done += len(chunk)
        yield done
        if rate is not None:
            producer.poll()
            clock.sleep(max(0.0, began + done / rate - clock.monotonic()))
