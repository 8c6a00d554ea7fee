"""Records into columns: those of the value, and those that come from the key or from a header."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import Column
from consumers.formats.decoder import Decoded, Reject, ValueDecoder, among, arrow_schema
from consumers.formats.json import JsonDecoder
from consumers.formats.raw import RawDecoder
from consumers.formats.text import TextDecoder


class RecordDecoder:
    """The columns as they are read. Where all come from the value, the value's decoder alone does the work."""

    def __init__(self, kind: Literal["json", "raw"], columns: Mapping[str, Column]) -> None:
        self.schema = arrow_schema(columns)
        own = {name: column for name, column in columns.items() if column.of_value}
        self._beside = {name: _Beside(name, column) for name, column in columns.items() if not column.of_value}
        self._values: ValueDecoder | None = None
        if own:
            self._values = JsonDecoder(own) if kind == "json" else RawDecoder(own)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Every record is a row or a reject. A tombstone has only what the key and the headers say."""
        decoded = self._decode_values(records["value"])
        return self._with_beside(decoded, records) if self._beside else decoded

    def _decode_values(self, values: pa.BinaryArray) -> Decoded:
        if self._values is None:
            return Decoded(pa.table({}), pa.array(np.arange(len(values), dtype=np.int32)))
        if not values.null_count:
            return self._values.decode(values)
        tombstone = values.is_null()
        present = pc.indices_nonzero(pc.invert(tombstone)).cast(pa.int32())
        decoded = self._values.decode(values.take(present))
        rejects = tuple(Reject(present[r.index].as_py(), r.reason) for r in decoded.rejects)
        at = present.take(decoded.indices).to_numpy()
        return Decoded(*among(decoded.rows, at, tombstone.to_numpy(zero_copy_only=False)), rejects)

    def _with_beside(self, decoded: Decoded, records: pa.RecordBatch) -> Decoded:
        """The rows with the columns of key and headers, less those for which one of these cannot be read."""
        indices = decoded.indices
        tombstone = records["value"].is_null().take(indices)
        columns: dict[str, pa.Array | pa.ChunkedArray] = dict(zip(decoded.rows.column_names, decoded.rows.columns, strict=True))
        why: dict[int, str] = {}
        for name, beside in self._beside.items():
            columns[name], bad = beside.read(records, indices, tombstone)
            why = bad | why
        rows = pa.table([columns[name] for name in self.schema.names], schema=self.schema)
        if not why:
            return Decoded(rows, indices, decoded.rejects)
        good = pa.array([i not in why for i in range(len(indices))])
        rejects = [*decoded.rejects, *(Reject(indices[i].as_py(), reason) for i, reason in why.items())]
        return Decoded(rows.filter(good), indices.filter(good), tuple(sorted(rejects, key=lambda r: r.index)))


class _Beside:
    """A column that stands beside the value: the key, or a header."""

    def __init__(self, name: str, column: Column) -> None:
        self._header = column.header
        self._required = not column.nullable
        self._origin = "the key" if column.header is None else f"the header `{column.header}`"
        self._name = name
        self._text = TextDecoder(name, column.type)

    def read(self, records: pa.RecordBatch, indices: pa.Array, tombstone: pa.BooleanArray) -> tuple[pa.Array, dict[int, str]]:
        """The column of the records `indices`, and by position in it why a record cannot be read."""
        texts = records["key"] if self._header is None else last_header(records["headers"], self._header)
        texts = texts.take(indices)
        values, bad = self._text.decode(texts)
        why = {i: f"column `{self._name}`: {self._origin}: {reason}" for i, reason in bad.items()}
        if self._required:
            missing = pc.and_(texts.is_null(), pc.invert(tombstone))
            for i in pc.indices_nonzero(missing).to_pylist():
                why[i] = f"column `{self._name}`: {self._origin}: missing"
        return values, why


def last_header(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """The last value of a header in each record; null where there is none, or where it has no value."""
    entries, parents = headers.flatten(), pc.list_parent_indices(headers)
    found = pc.indices_nonzero(pc.fill_null(pc.equal(pc.struct_field(entries, "key"), name), False)).to_numpy()
    at = np.full(len(headers), -1, np.int64)
    at[parents.to_numpy()[found]] = found  # numpy assigns in order, so the last one stays
    return pc.struct_field(entries, "value").take(pa.array(at, mask=at < 0))
