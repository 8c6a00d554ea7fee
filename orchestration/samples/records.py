"""Turns a sample frame into Kafka records, and a seeded share of them into broken ones."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from orchestration.local.errors import LocalError
from orchestration.samples.sources import (
    ACCOUNTS,
    SEED,
    TRANSACTIONS,
    flights_frame,
    transactions_frame,
    weather_frame,
)


@dataclass(frozen=True)
class Sample:
    """A sample topic: how many partitions, which columns give key and time, and a required whole number to
    break.
    """

    topic: str
    partitions: int
    key: str
    time: str
    required: str
    frame: Callable[[int], pd.DataFrame]


SAMPLES = {
    sample.topic: sample
    for sample in (
        Sample("flights", 4, "origin", "time_hour", "distance", lambda _seed: flights_frame()),
        Sample("weather", 2, "origin", "time_hour", "hour", lambda _seed: weather_frame()),
        Sample("transactions", 4, "account_id", "booked_at", "amount_cents", transactions_frame),
    )
}


class Record(NamedTuple):
    """What goes to Kafka; `timestamp` in milliseconds since the epoch."""

    key: bytes
    value: bytes
    timestamp: int


def sample(topic: str) -> Sample:
    """The sample of that name. Raises LocalError with the names there are."""
    try:
        return SAMPLES[topic]
    except KeyError:
        raise LocalError(f"no sample topic {topic!r}: there are {', '.join(SAMPLES)}") from None


def malformed_rows(count: int, share: float, seed: int = SEED) -> npt.NDArray[np.bool_]:
    """Which of `count` records are broken when `share` (0 to 1) of them is to be; the same for the same
    arguments.

    Drawn record by record, so a shorter run breaks the same records as the start of a longer one.
    """
    if not 0 <= share <= 1:
        raise LocalError(f"the share of malformed records is between 0 and 1, not {share}")
    return np.random.Generator(np.random.PCG64([seed, 1])).random(count) < share


def expected_balances(
    seed: int = SEED, count: int = TRANSACTIONS, malformed: float = 0.0, limit: int | None = None
) -> dict[str, int]:
    """Cents by account after the topic's transactions; accounts without any have 0.

    Malformed ones do not count.
    """
    frame = transactions_frame(seed, count)[:limit]
    valid = frame[~malformed_rows(len(frame), malformed, seed)]
    sums = valid.groupby("account_id")["amount_cents"].sum()
    balances = {f"A{number:05d}": 0 for number in range(ACCOUNTS)}
    return balances | {str(account): int(cents) for account, cents in sums.items()}


def values(frame: pd.DataFrame) -> Iterator[bytes]:
    """Each row as strict JSON: missing is null, whole numbers have no point, times are RFC 3339 in UTC with a
    Z.
    """
    row_type = msgspec.defstruct("Row", [str(name) for name in frame.columns])
    encode = msgspec.json.Encoder().encode
    return map(encode, map(row_type, *(_plain(frame[name]) for name in frame.columns)))


def keys(frame: pd.DataFrame, column: str) -> Iterator[bytes]:
    """The column's text as bytes."""
    return map(str.encode, frame[column].tolist())


def milliseconds(times: "pd.Series[Any]") -> list[int]:
    """Milliseconds since the epoch."""
    stamps: list[int] = times.dt.as_unit("ms").astype("int64").tolist()
    return stamps


def _plain(column: "pd.Series[Any]") -> list[object]:
    """Python values that JSON has."""
    if isinstance(column.dtype, pd.DatetimeTZDtype):  # numpy formats far faster than strftime
        seconds = column.dt.tz_localize(None).to_numpy().astype("datetime64[s]")
        stamps: list[object] = np.char.add(np.datetime_as_string(seconds), "Z").tolist()
        return stamps
    present: list[bool] = column.notna().tolist()
    return [value if there else None for value, there in zip(column.tolist(), present, strict=True)]


def records(topic: Sample, frame: pd.DataFrame, malformed: npt.NDArray[np.bool_], seed: int) -> Iterator[Record]:
    """The frame's rows as records, those marked in `malformed` broken; a broken one keeps its key and its
    time.
    """
    choose = random.Random(seed)
    rows = zip(
        keys(frame, topic.key),
        values(frame),
        milliseconds(frame[topic.time]),
        malformed.tolist(),
        strict=True,
    )
    for key, value, timestamp, broken in rows:
        yield Record(key, choose.choice(BREAKS)(value, topic) if broken else value, timestamp)


def truncated(value: bytes, _topic: Sample) -> bytes:
    """The JSON ends in the middle."""
    return value[: len(value) // 2]


def wrong_type(value: bytes, topic: Sample) -> bytes:
    """Text where a whole number belongs."""
    return _with(value, topic.required, "many")


def missing(value: bytes, topic: Sample) -> bytes:
    """A required field is not there."""
    row = json.loads(value)
    del row[topic.required]
    return msgspec.json.encode(row)


def invalid_utf8(value: bytes, topic: Sample) -> bytes:
    """A text that the schema declares holds bytes that are no UTF-8."""
    opening = f'"{topic.key}":"'.encode()
    return value.replace(opening, opening + b"\xff\xfe", 1)


def overflow(value: bytes, topic: Sample) -> bytes:
    """A number too large for 64 bits."""
    return _with(value, topic.required, 10**30)


# Ways to break a JSON object, none of which a strict reader of the topic's schema may accept.
Break = Callable[[bytes, Sample], bytes]
BREAKS: tuple[Break, ...] = (truncated, wrong_type, missing, invalid_utf8, overflow)


def _with(value: bytes, name: str, new: object) -> bytes:
    return json.dumps({**json.loads(value), name: new}, separators=(",", ":")).encode()
