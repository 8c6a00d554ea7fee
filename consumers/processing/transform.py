"""The user's function between reading and the table: a batch of columns in, the schema's columns of as many rows out."""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import Column
from consumers.errors import ConfigError
from consumers.formats import Decoded, Decoder, Reject
from consumers.formats.decoder import among, arrow_schema
from consumers.formats.values import unfit
from consumers.processing.strategies.task import Misused, attempt
from consumers.types import OffsetRange, TopicPartition

Function = Callable[[pa.Table], pa.Table]
"""Takes the columns as they are read, and `_partition`, `_offset`, `_timestamp` (milliseconds), `_key` and `_headers`.

Returns a table with the schema's columns, as many rows, in the same order; other columns are left out. `InvalidRecord` with a
row's `_partition` and `_offset` (or `InvalidRecords`) makes dead letters of rows, and the function is called again with the
others. It should depend on its argument alone.
"""
_BESIDE = ("partition", "offset", "timestamp", "key", "headers")


def function_of(dotted: str) -> Function:
    """Import `package.module.function`. Raises ConfigError that says what is missing."""
    module_name, _, name = dotted.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"transform: cannot import '{module_name}' of '{dotted}': {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"transform: module '{module_name}' has no function '{name}'")
    return cast(Function, function)


class Transformed:
    """A decoder whose rows a function has made. Tombstones have nothing for it to work on, and stay without columns."""

    def __init__(self, decoder: Decoder, function: str, columns: Mapping[str, Column], topic: str) -> None:
        self.schema = arrow_schema(columns)
        self._decoder = decoder
        self._function = function_of(function)
        self._topic = topic

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """Rows of the schema. Raises `TaskFailed` where the function raises anything but that records are invalid."""
        decoded = self._decoder.decode(records)
        tombstone = records["value"].is_null()
        alive = pc.invert(tombstone.take(decoded.indices))
        rows, indices = decoded.rows.filter(alive), decoded.indices.filter(alive)
        made, indices, rejects = self._made(records, rows, indices)
        if rows.num_rows < decoded.rows.num_rows:
            kept = np.zeros(len(tombstone), np.bool_)
            kept[decoded.indices.filter(pc.invert(alive)).to_numpy()] = True
            made, indices = among(made, indices.to_numpy(), kept)
        return Decoded(made, indices, tuple(sorted([*decoded.rejects, *rejects], key=lambda r: r.index)))

    def _made(self, records: pa.RecordBatch, rows: pa.Table, indices: pa.Array) -> tuple[pa.Table, pa.Array, list[Reject]]:
        """What the function makes of rows, the record index of each, and the records that are none."""
        if not rows.num_rows:
            return self.schema.empty_table(), indices, []
        beside = records.take(indices)
        for name in _BESIDE:
            rows = rows.append_column(f"_{name}", beside[name])
        # The function may be given fewer rows when it is called again, so they are numbered.
        numbers = np.arange(len(indices))
        numbered = pa.table({"partition": beside["partition"], "offset": beside["offset"], "number": numbers})
        done = attempt(self._called_on(rows), numbered, _ranges(self._topic, beside))
        table, left = done.value
        why: dict[int, str] = {}
        if done.rejected:
            place = {at: i for i, at in enumerate(zip(*(beside[n].to_pylist() for n in ("partition", "offset")), strict=True))}
            why = {place[r.partition.partition, r.offset]: r.reason for r in done.rejected}
        if bad := unfit(table):
            why |= {int(left[i]): reason for i, reason in bad.items()}
            good = np.setdiff1d(np.arange(len(left)), list(bad))
            table, left = table.take(pa.array(good)), left[good]
        return table, indices.take(pa.array(left)), [Reject(indices[i].as_py(), reason) for i, reason in why.items()]

    def _called_on(self, rows: pa.Table) -> Callable[[pa.Table], tuple[pa.Table, np.ndarray]]:
        @functools.wraps(self._function)
        def called(numbered: pa.Table) -> tuple[pa.Table, np.ndarray]:
            numbers = numbered["number"].to_numpy()
            given = rows if len(numbers) == rows.num_rows else rows.take(pa.array(numbers))
            return self._checked(self._function(given), given.num_rows), numbers

        return called

    def _checked(self, made: object, count: int) -> pa.Table:
        """The schema's columns of what the function returned."""
        if not isinstance(made, pa.Table):
            raise Misused(f"it returned a {type(made).__name__} instead of a pyarrow Table")
        if made.num_rows != count:
            raise Misused(f"it returned {made.num_rows} rows for {count}; records are left out by `where`, or by InvalidRecords")
        if missing := [name for name in self.schema.names if made.column_names.count(name) != 1]:
            raise Misused(f"it returned no column '{missing[0]}', or two of that name, and the schema has it")
        return pa.table([_typed(made[f.name], f) for f in self.schema], schema=self.schema)


def _typed(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column in the declared type, where its own is of the same kind and no value changes."""
    if column.type == field.type:
        return column
    wrong = f"its column '{field.name}' is {column.type}, and the schema has {field.type}"
    if not any(same(column.type) and same(field.type) for same in _KINDS):
        raise Misused(wrong)
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise Misused(f"{wrong}: {error}") from error


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


_KINDS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, _is_text, _is_bytes, _is_moment)


def _ranges(topic: str, records: pa.RecordBatch) -> dict[TopicPartition, OffsetRange]:
    """From the first to the last offset of each partition."""
    extent = pa.table({"p": records["partition"], "o": records["offset"]}).group_by("p").aggregate([("o", "min"), ("o", "max")])
    rows = zip(*(extent[name].to_pylist() for name in ("p", "o_min", "o_max")), strict=True)
    return {TopicPartition(topic, p): OffsetRange(low, high + 1) for p, low, high in rows}
