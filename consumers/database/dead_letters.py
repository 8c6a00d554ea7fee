"""Dead letters in a SQL database: written in the transaction that moves the position past them, so each is there exactly once."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from sqlalchemy import Connection

from consumers.database.tables import DEAD_LETTERS
from consumers.database.writes import Row, Write, upsert
from consumers.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Origin:
    """The incarnation of a partition's log: hash of its topic's id, and the epoch in which offsets began to be used again."""

    topic_id_hash: int = 0
    cut: int = 0


def write_dead_letters(
    connection: Connection, consumer: str, letters: pa.Table, origin: Callable[[TopicPartition], Origin], now: datetime
) -> None:
    """Write records (`topic`, the columns of `RECORD_COLUMNS`, `reason`).

    Those that are there already, since an operator moved the position back, are replaced.
    """
    # As numbers: Python's datetime cannot hold every timestamp that Kafka takes.
    stamps = letters["timestamp"].cast(pa.int64()).to_pylist()
    plain = letters.drop_columns(["timestamp"]).to_pylist()
    rows = [_row(consumer, letter, stamp, origin, now) for letter, stamp in zip(plain, stamps, strict=True)]
    write: Write[list[Row]] = upsert(DEAD_LETTERS, [column.name for column in DEAD_LETTERS.primary_key])
    write(connection, [rows])


def _row(consumer: str, letter: Row, timestamp_ms: int | None, origin: Callable[[TopicPartition], Origin], now: datetime) -> Row:
    since = origin(TopicPartition(letter["topic"], letter["partition"]))
    return {
        **letter,
        "consumer": consumer,
        "topic_id_hash": since.topic_id_hash,
        "cut": since.cut,
        "timestamp_ms": timestamp_ms,
        "headers": _headers(letter["headers"]),
        "failed_at": now,
    }


def _headers(headers: list[dict[str, object]] | None) -> str | None:
    if headers is None:
        return None
    return json.dumps([[each["key"], _text(each["value"])] for each in headers])


def _text(value: object) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else None
