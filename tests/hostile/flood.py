"""Hostile records through the real engine, in a process of their own: broker in memory, decoder, `Stage`, dead letters, Delta.

`python -m tests.hostile.flood FOLDER COUNT SEED` prints as JSON what became of them, and how much memory that took; `giants` as
COUNT takes those instead. Whatever is lost, twice, changed, or read otherwise than Python reads it ends it with an error.
"""

import json
import re
import resource
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer, ConsumerConfig
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.types import TopicPartition
from tests.consumers.parts import contents
from tests.hostile import corpus

ROUND = 10_000
"""Records that wait at a time: memory depends on this, and not on how many there are in all."""
_COLUMNS = {
    "a": "long",
    "s": "string",
    "d": "decimal(9,2)",
    "f": "double",
    "b": "boolean",
    "t": "timestamp",
    "day": "date",
    "o": {"type": "long", "path": "o.o.i"},
    "l": {"type": "long", "path": "l[1][0]"},
    "key": {"type": "long", "key": True},
    "sent": {"type": "timestamp", "header": "sent"},
}
_EXACT = ("a", "s", "b")
_NO_NUMBER = re.compile(rb"-?(NaN|Inf)\b")
_LARGEST = {"max.message.bytes": str(2 * corpus.LARGE)}


@dataclass(frozen=True)
class Outcome:
    """What became of records, and memory in MiB: once Python is up, after the first round, at most."""

    records: int
    rows: int
    dead_letters: int
    longest_reason: int
    at_start: int
    after_first: int
    at_most: int


def main(folder: Path, count: str, seed: int) -> Outcome:
    """Send them all, round by round, and account for every one."""
    values: Iterable[bytes | None] = corpus.giants().values() if count == "giants" else corpus.records(int(count), seed)
    start, first = _peak(), 0
    totals = [0, 0, 0, 0]
    for number, round_ in enumerate(_rounds(values)):
        found = _stage(folder / str(number), round_)
        totals = [totals[0] + found[0], totals[1] + found[1], totals[2] + found[2], max(totals[3], found[3])]
        first = first or _peak()
    return Outcome(*totals, start, first, _peak())


def _rounds(values: Iterable[bytes | None]) -> Iterator[list[bytes | None]]:
    left = iter(values)
    while taken := list(islice(left, ROUND)):
        yield taken


def _stage(folder: Path, values: list[bytes | None]) -> tuple[int, int, int, int]:
    """Records, rows, dead letters and the longest reason of one round."""
    config = ConsumerConfig.model_validate({"topic": "t", "schema": _COLUMNS, "window": "day"})
    consumer = Consumer(name="c", config=config, staged=folder / "staged", dead_letters=folder / "dead")
    clock = ManualClock(1_700_000_000.0)
    cluster = _filled(clock, values)
    stop, limits = threading.Event(), Limits(until_caught_up=True)
    stage_from(MemoryConsumer(cluster, "t", "g"), consumer, "m", stop, limits, lambda commit: None, Surroundings(clock=clock))
    rows = contents(consumer.staged).select([*_EXACT, "_offset", "_tombstone"]).to_pylist()
    letters = contents(consumer.dead_letters).select(["_offset", "_value", "_key", "_headers", "_reason"]).to_pylist()
    _account_for(values, rows, letters)
    return len(values), len(rows), len(letters), max((len(letter["_reason"]) for letter in letters), default=0)


def _filled(clock: ManualClock, values: list[bytes | None]) -> MemoryCluster:
    cluster = MemoryCluster(clock)
    MemoryAdmin(cluster).create_topic("t", config=_LARGEST)
    producer = MemoryProducer(cluster)
    for offset, value in enumerate(values):
        producer.send("t", value, _key(offset), headers=_headers(offset), partition=0)
    producer.close()
    assert len(cluster.records(TopicPartition("t", 0))) == len(values)
    return cluster


def _key(offset: int) -> bytes | None:
    """Mostly a number; now and then none, or what is no number and no text."""
    return {0: None, 1: b"\xff\0", 2: b"1" * 5_000}.get(offset % 50, b"%d" % offset)


def _headers(offset: int) -> list[tuple[str, bytes | None]]:
    """Now and then a time that is none."""
    return {0: [("sent", b"\xff")], 1: [("sent", None)], 2: [("sent", b'2013"}{')]}.get(offset % 60, [("other", b"\0")])


def _account_for(values: list[bytes | None], rows: list[dict[str, Any]], letters: list[dict[str, Any]]) -> None:
    """Raise AssertionError unless each record is one row, as Python reads it, or one dead letter, byte by byte."""
    places = sorted(each["_offset"] for each in (*rows, *letters))
    assert places == list(range(len(values))), f"lost or twice: {set(range(len(values))) ^ set(places)}"
    for letter in letters:
        offset = letter["_offset"]
        assert letter["_value"] == values[offset] and letter["_key"] == _key(offset), f"offset {offset} is not as it was sent"
        assert [(each["key"], each["value"]) for each in letter["_headers"]] == _headers(offset)
    for row in rows:
        value = values[row["_offset"]]
        assert row["_tombstone"] is (value is None)
        if value is not None:
            meant = _meant(value)
            assert isinstance(meant, dict), f"{value[:200]!r} is no object"
            assert [row[name] for name in _EXACT] == [meant.get(name) for name in _EXACT], f"{value[:200]!r} became {row}"


def _meant(value: bytes) -> object:
    """What Python reads; of a giant that is nested too deeply for it, an object without the columns that are compared.

    Fields that are not declared may hold more words for numbers that are none than Python knows.
    """
    try:
        return json.loads(_NO_NUMBER.sub(b"NaN", value))
    except RecursionError:
        return {}


def _peak() -> int:
    """The most memory so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    sys.set_int_max_str_digits(10_000)
    sys.setrecursionlimit(10_000)
    sys.stdout.write(json.dumps(asdict(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))))
