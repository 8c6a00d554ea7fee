"""The seam between bytes and columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from consumers.config import Column


@dataclass(frozen=True, slots=True)
class Reject:
    """A value that cannot become a row: its index in the input, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows, the input index of each (ascending), and the rejected rest. Together they are the whole input."""

    rows: pa.Table
    indices: pa.Array
    rejects: tuple[Reject, ...] = ()


class Decoder(Protocol):
    """Turns values into rows. Whether a value is accepted, and as what, never depends on its neighbours."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of `Decoded.rows`."""
        ...

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode `values`, which hold no nulls. Raises nothing for bad bytes: they are rejects."""
        ...


def arrow_schema(columns: Mapping[str, Column]) -> pa.Schema:
    """The declared columns as an Arrow schema."""
    return pa.schema([pa.field(name, column.arrow, column.nullable) for name, column in columns.items()])
