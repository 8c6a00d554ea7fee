"""Records of a real topic through a consumer's own decoder and windows, with nothing written and no group joined."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import Consumer
from consumers.processing.decoding import decoder_for
from consumers.processing.strategies.protocol import Message
from consumers.processing.strategies.stage.buffer import Shaped, shape
from consumers.staging.schema import WINDOW
from orchestration.proposal.sample import Sample

_VALUE_SHOWN = 100


@dataclass(frozen=True)
class RejectedAs:
    """A reason, how many records have it, and where the first of them is, with the beginning of its value."""

    reason: str
    count: int
    partition: int
    offset: int
    value: str


@dataclass(frozen=True)
class Trial:
    """What `records` records would become: `rows` of the staged table, dead letters by reason, and how many belong to no table.

    `bytes_in` are those of keys and values, `bytes_out` those of the decoded rows in memory.
    """

    records: int
    rows: pa.Table
    rejected: tuple[RejectedAs, ...]
    passed_over: int
    windows: Mapping[str, int]
    bytes_in: int
    bytes_out: int

    @property
    def dead_letters(self) -> int:
        """How many records would be dead letters."""
        return sum(each.count for each in self.rejected)


def attempt(consumer: Consumer, sample: Sample, now_ms: int) -> Trial:
    """Decode and place a sample exactly as ingestion would."""
    config = consumer.config
    message = Message(sample.records, sample.ranges, (sample.records,))
    labels = dict.fromkeys(sample.ranges, "")
    shaped = shape(message, decoder_for(config), config.window, labels, now_ms)
    windows = Counter(str(key) for key in shaped.rows[WINDOW].to_pylist())
    records = sample.records.num_rows
    dead = 0 if shaped.rejects is None else shaped.rejects.num_rows
    return Trial(
        records=records,
        rows=shaped.rows,
        rejected=_rejected(shaped),
        passed_over=records - shaped.rows.num_rows - dead,
        windows=dict(sorted(windows.items())),
        bytes_in=sum(int(pc.sum(pc.binary_length(sample.records[name])).as_py() or 0) for name in ("key", "value")),
        bytes_out=int(shaped.rows.nbytes),
    )


def _rejected(shaped: Shaped) -> tuple[RejectedAs, ...]:
    if shaped.rejects is None:
        return ()
    letters = shaped.rejects.select(["_reason", "_partition", "_offset", "_value"]).to_pylist()
    counts = Counter(letter["_reason"] for letter in letters)
    first = {letter["_reason"]: letter for letter in reversed(letters)}
    return tuple(
        RejectedAs(reason, count, first[reason]["_partition"], first[reason]["_offset"], _text(first[reason]["_value"]))
        for reason, count in counts.most_common()
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value[:_VALUE_SHOWN].decode("utf-8", "backslashreplace")
