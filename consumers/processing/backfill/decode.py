"""Records by today's definition, sorted by what becomes of each as far as one window is concerned."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import Consumer
from consumers.processing.decoding import decoder_for
from consumers.processing.strategies.protocol import Message
from consumers.processing.strategies.stage.buffer import shape
from consumers.staging.places import ranges_of
from consumers.staging.schema import DEAD_LETTERS, PLACE, WINDOW, filled, staged_schema
from consumers.types import TopicPartition

_PLACE = pa.schema([DEAD_LETTERS.field(name) for name in PLACE])


@dataclass
class Decoded:
    """What some records give for one window; without a window, for whichever they belong to. One thread's own.

    `seen` are all records that were looked at, `others` those that are rows of other windows (both: columns `PLACE`). `rows` are
    of the window, in the staged columns. `rejects` cannot be rows. What is in none of the three was passed over.
    """

    window: str | None
    schema: pa.Schema
    _seen: list[pa.Table] = field(default_factory=list)
    _others: list[pa.Table] = field(default_factory=list)
    _rows: list[pa.Table] = field(default_factory=list)
    _rejects: list[pa.Table] = field(default_factory=list)

    @property
    def seen(self) -> pa.Table:
        return _joined(self._seen, _PLACE)

    @property
    def others(self) -> pa.Table:
        return _joined(self._others, _PLACE)

    @property
    def rows(self) -> pa.Table:
        return _joined(self._rows, self.schema)

    @property
    def rejects(self) -> pa.Table:
        return _joined(self._rejects, DEAD_LETTERS)

    def add(self, seen: pa.Table, rows: pa.Table, rejects: pa.Table | None) -> None:
        """Take in what the records `seen` became."""
        here = pc.equal(rows[WINDOW], self.window) if self.window is not None else rows[WINDOW].is_valid()
        self._seen.append(seen)
        self._rows.append(filled(rows.filter(here), self.schema))
        self._others.append(filled(rows.filter(pc.invert(here)), _PLACE))
        if rejects is not None:
            self._rejects.append(filled(rejects, DEAD_LETTERS))


class Shaper:
    """Decodes records exactly as staging does."""

    def __init__(self, consumer: Consumer) -> None:
        self.schema = staged_schema(consumer.config.columns, consumer.config.keep_raw)
        self._config = consumer.config
        self._decoder = decoder_for(consumer.config)

    def add(self, into: Decoded, records: pa.RecordBatch, labels: pa.Array, now_ms: int) -> None:
        """Decode `records`, whose rows have these `labels` (`_topic_id`; one for all records of a partition)."""
        if not records.num_rows:
            return
        topic = pa.array([self._config.topic] * records.num_rows, pa.string())
        seen = pa.table([topic, labels, records["partition"], records["offset"]], schema=_PLACE)
        ranges = ranges_of(seen)
        by_partition = dict(zip(records["partition"].to_pylist(), labels.to_pylist(), strict=True))
        present = {TopicPartition(tp.topic, tp.partition): by_partition[tp.partition] for tp in ranges}
        message = Message(records, ranges, (records,))
        shaped = shape(message, self._decoder, self._config.window, present, now_ms, self._config.keep_raw)
        into.add(seen, shaped.rows, shaped.rejects)


def _joined(parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *parts])
