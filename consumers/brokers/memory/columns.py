"""Log entries as the columns of a record batch."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from consumers.brokers.memory.log import Entry
from consumers.brokers.protocol import Headers
from consumers.types import HEADERS, RECORD_COLUMNS, TopicPartition

_TIMESTAMP = RECORD_COLUMNS.field("timestamp").type


def to_columns(found: Mapping[TopicPartition, list[Entry]]) -> pa.RecordBatch:
    """Entries of some partitions, one partition after the other, with the columns of `RECORD_COLUMNS`."""
    entries = [entry for part in found.values() for entry in part]
    partitions = [tp.partition for tp, part in found.items() for _ in part]
    offsets, stamps, keys, values, headers = list(zip(*entries, strict=True))[:5] if entries else ((), (), (), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(stamps, _TIMESTAMP),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            _headers(headers),
        ],
        schema=RECORD_COLUMNS,
    )


def _headers(every: Sequence[Headers]) -> pa.Array:
    if not any(every):
        return pa.nulls(len(every), HEADERS)
    return pa.array([[{"key": k, "value": v} for k, v in some] if some else None for some in every], HEADERS)
