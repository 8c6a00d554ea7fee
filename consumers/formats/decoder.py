"""The seam between bytes and columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from consumers.config import Column


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that cannot become a row: its index in the input, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows, the input index of each (ascending), and the rejected rest. What is in neither was passed over."""

    rows: pa.Table
    indices: pa.Array
    rejects: tuple[Reject, ...] = ()


class ValueDecoder(Protocol):
    """Turns values into rows. Whether a value is accepted, and as what, never depends on its neighbours."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of `Decoded.rows`."""
        ...

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode `values`, which hold no nulls. Raises nothing for bad bytes: they are rejects. Passes nothing over."""
        ...


class Decoder(Protocol):
    """Turns records into rows, tombstones included."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of `Decoded.rows`. Tombstones have nulls also where it says that there are none."""
        ...

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Decode records, which have the columns of `RECORD_COLUMNS`. Raises nothing for bad bytes: they are rejects."""
        ...


def arrow_schema(columns: Mapping[str, Column]) -> pa.Schema:
    """The declared columns as an Arrow schema."""
    return pa.schema([pa.field(name, column.arrow, column.nullable) for name, column in columns.items()])


def among(rows: pa.Table, indices: np.ndarray, tombstone: np.ndarray) -> tuple[pa.Table, pa.Array]:
    """Rows of the records `indices`, and an empty row for each tombstone; all in the order of the records, and their indices."""
    at = np.full(len(tombstone), -1, np.int64)
    at[indices] = np.arange(rows.num_rows)
    kept = np.flatnonzero((at >= 0) | tombstone)
    return rows.take(pa.array(at[kept], mask=at[kept] < 0)), pa.array(kept.astype(np.int32))
