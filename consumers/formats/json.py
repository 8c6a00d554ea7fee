"""JSON objects into columns, a batch at once, with a proof that record i became row i.

pyarrow's reader sees a stream of objects, not records: a record may hold two objects, two records may be one object, and
equal counts prove nothing. What proves it here:

- the records are joined by a newline, each starts with `{` and ends with `}`;
- the reader's grammar allows a raw newline nowhere inside a string, and `}` before `{` nowhere but between two objects of
  the stream, so every record's end is the end of an object;
- as many rows came out as records went in, so every record is exactly one object.

The reader is typed by the declared schema, nested where a column's path is: an object or array on the way to a value has to be
one, or null, and an array's elements are all typed alike. Values are then taken out of the objects and arrays row by row, which
cannot change their order. What it is lenient about (UTF-8 in fields that are not declared, NaN, timestamps
without an offset, nulls in required columns) is checked on the bytes or on the columns. A batch for which any of this fails is
split: records that a second, per-record parser refuses are rejected where no two parsers could differ about it and tried alone
where they could; the others are tried together, then by halves. So a record is accepted exactly when it is accepted alone,
whatever stands beside it.

Sources: RFC 8259; Arrow's reader (RapidJSON underneath) for what it accepts, pinned by tests/consumers/formats/test_json.py.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from consumers.config import Column, arrow_type
from consumers.formats.decoder import Decoded, Reject, arrow_schema
from consumers.formats.values import in_calendar
from consumers.paths import Items, Leaf, Node, Object, Steps, parse, tree

_SPACE = b" \t\r\n"
# Messages of the per-record parser about which no other parser can differ: another JSON type, a whole number out of range, a
# required field that is not there. (For times and decimals the reader knows more forms.)
_SURELY_INVALID = re.compile(
    r"Expected `(int|str|bool|float|object|array)( \| null)?`, got |Expected `int( \| null)?` [<>]= "
    r"|Object missing required field"
)
_OWN = re.compile(
    r"^JSON parse error: | in row \d+$"
    r"|:? '[^']*'(?= as a scalar | cannot be represented )|: \S+(?= requires )|(?<=\)): \S+$"
    r"|\. If these timestamps are .*(?= - at )",
    re.DOTALL,
)
_OPEN, _CLOSE = ord("{"), ord("}")


class _Unproven(Exception):
    """These records, taken together, are not rows. Alone, some may be."""


class _Spoiled(_Unproven):
    """Every record is one object, but some are no rows, alone neither; by index, why."""

    def __init__(self, why: Mapping[int, str]) -> None:
        super().__init__()
        self.why = why


class JsonDecoder:
    """One JSON object a record; fields that are not declared are ignored."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.schema = arrow_schema(columns)
        self._paths = [column.path or name for name, column in columns.items()]
        self._steps = [parse(path) for path in self._paths]
        leaves = [Leaf(column.type, not column.nullable) for column in columns.values()]
        fields = tree(zip(self._paths, leaves, strict=True))
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field(name, _read_as(node)) for name, node in fields.items()]),
            unexpected_field_behavior="ignore",
        )
        self._check = msgspec.json.Decoder(_struct(fields)).decode

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Rows and rejects of `values`."""
        every = pa.array(np.arange(len(values), dtype=np.int32))
        if not len(values):
            return Decoded(self.schema.empty_table(), every)
        try:
            return Decoded(self._together(values), every)
        except _Unproven:
            return self._apart(values)

    def _together(self, values: pa.BinaryArray) -> pa.Table:
        """All of `values` as rows, or `_Unproven`."""
        if not _framed(values):
            raise _Unproven("not a JSON object")
        text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")
        try:
            text.cast(pa.string())
        except pa.ArrowInvalid:
            raise _Unproven("invalid UTF-8") from None
        buffer = text.buffers()[2]
        try:
            table = pj.read_json(
                pa.BufferReader(buffer),
                read_options=pj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
                parse_options=self._options,
            )
        except pa.ArrowInvalid as error:
            raise _Unproven(str(error)) from None
        if table.num_rows != len(values):
            raise _Unproven("not exactly one JSON object")
        return self._typed(table)

    def _typed(self, table: pa.Table) -> pa.Table:
        """The reader's columns in the declared types, or `_Unproven`."""
        columns = []
        for field, path, steps in zip(self.schema, self._paths, self._steps, strict=True):
            column = _at(table[steps[0]], steps[1:])
            if not field.nullable and column.null_count:
                missing = pc.indices_nonzero(column.is_null()).to_pylist()
                raise _Spoiled(dict.fromkeys(missing, f"required field `{path}` is missing or null"))
            try:
                typed = column.cast(field.type)
            except pa.ArrowInvalid:
                raise _Spoiled({row: f"{why} - at `$.{path}`" for row, why in _not_cast(column, field.type)}) from None
            if pa.types.is_floating(field.type) and pc.all(pc.is_finite(typed)).as_py() is False:
                odd = pc.indices_nonzero(pc.invert(pc.is_finite(typed))).to_pylist()
                raise _Spoiled(dict.fromkeys(odd, f"not a finite number - at `$.{path}`"))
            if pa.types.is_temporal(field.type) and not in_calendar(typed):
                raise _Unproven(f"not in the years 1 to 9999 (UTC) - at `$.{path}`")
            columns.append(typed)
        return pa.table(columns, schema=self.schema)

    def _apart(self, values: pa.BinaryArray) -> Decoded:
        """Find the records that spoil the batch, and decode the others."""
        records: list[bytes] = [value.strip(_SPACE) for value in values.to_pylist()]
        suspects = {i: doubt for i, record in enumerate(records) if (doubt := self._doubt(record))}
        rejects = [Reject(i, _reason(doubt.why)) for i, doubt in suspects.items() if doubt.certain]
        open_ = {i: doubt for i, doubt in suspects.items() if not doubt.certain}
        groups = [[i] for i, doubt in open_.items() if not doubt.of_value]
        # Values are judged row by row once they are read, which costs far less than reading record by record.
        together = [i for i, doubt in open_.items() if doubt.of_value], [i for i in range(len(records)) if i not in suspects]
        groups += filter(None, together)
        tables: list[pa.Table] = []
        order: list[int] = []

        def rejected(index: int, why: str) -> Reject:
            return Reject(index, _reason(suspects[index].why if index in suspects else why))

        while groups:
            group = groups.pop()
            try:
                tables.append(self._together(pa.array([records[i] for i in group], pa.binary())))
                order += group
            except _Spoiled as error:
                rejects += [rejected(group[row], why) for row, why in error.why.items()]
                if rest := np.delete(group, list(error.why)).tolist():
                    groups.append(rest)
            except _Unproven as error:
                if len(group) > 1:
                    groups += [group[: len(group) // 2], group[len(group) // 2 :]]
                else:
                    rejects.append(rejected(group[0], str(error)))
        rows = pa.concat_tables([self.schema.empty_table(), *tables])
        indices = np.array(order, dtype=np.int32)
        by_index = np.argsort(indices, kind="stable")
        rejects.sort(key=lambda reject: reject.index)
        return Decoded(rows.take(pa.array(by_index)), pa.array(indices[by_index]), tuple(rejects))

    def _doubt(self, record: bytes) -> "_Doubt | None":
        """Why a record is probably, or certainly, no row; None where it probably is one."""
        try:
            self._check(record)
        except msgspec.ValidationError as error:
            return _Doubt(str(error), _SURELY_INVALID.match(str(error)) is not None, of_value=True)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _Doubt(str(error), _surely_malformed(record))
        except RecursionError as error:
            return _Doubt(str(error), certain=False)
        return None


@dataclass(frozen=True, slots=True)
class _Doubt:
    """What the per-record parser has against a record, whether the reader is certain to refuse it, and whether it is JSON."""

    why: str
    certain: bool
    of_value: bool = False


def _surely_malformed(record: bytes) -> bool:
    """Whether Python's own parser refuses the record as well. It knows fewer words for numbers that are none."""
    if b"NaN" in record or b"Inf" in record:
        return False
    try:
        json.loads(record)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _framed(values: pa.BinaryArray) -> bool:
    """Whether every value starts with `{` and ends with `}`."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    if (ends[1:] - ends[:-1] < 2).any():
        return False
    text = np.frombuffer(data, np.uint8)
    return bool((text[ends[:-1]] == _OPEN).all() and (text[ends[1:] - 1] == _CLOSE).all())


def _not_cast(column: pa.ChunkedArray, kind: pa.DataType, first: int = 0) -> Iterator[tuple[int, str]]:
    """The rows whose values cannot be cast, and why; `first` is the number of the column's first row."""
    try:
        column.cast(kind)
    except pa.ArrowInvalid as error:
        if len(column) == 1:
            yield first, str(error)
        else:
            half = len(column) // 2
            yield from _not_cast(column.slice(0, half), kind, first)
            yield from _not_cast(column.slice(half), kind, first + half)


def _at(column: pa.ChunkedArray, steps: Steps) -> pa.ChunkedArray:
    """What stands at `steps` in each row; null where there is nothing."""
    if not steps:
        return column
    values = column.combine_chunks()
    for step in steps:
        values = pc.struct_field(values, step) if isinstance(step, str) else _element(values, step)
    return pa.chunked_array([values])


def _element(lists: pa.ListArray, index: int) -> pa.Array:
    """One element of each array; null where it is shorter."""
    there = pc.fill_null(pc.greater(pc.list_value_length(lists), index), False)
    places = pc.add(lists.offsets[:-1].cast(pa.int64()), index)
    return lists.values.take(pc.if_else(there, places, pa.scalar(None, pa.int64())))


def _read_as(node: Node) -> pa.DataType:
    """The type that the reader is asked for; what is taken out of it is then cast to the column's.

    The reader takes timestamps without an offset for UTC, so those are read as text. It counts a decimal's digits before it
    applies the scale, which can then overflow unnoticed, so those are read into a type with room for any 38 digits at any scale,
    also for more of them behind the point than the column has.
    """
    if isinstance(node, Items):
        return pa.list_(_read_as(node.inner))
    if isinstance(node, dict):
        return pa.struct([pa.field(name, _read_as(inner)) for name, inner in node.items()])
    kind = arrow_type(node.kind)
    if pa.types.is_decimal(kind):
        return pa.decimal256(38, 38)
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else kind


def _struct(fields: Object) -> type[msgspec.Struct]:
    """An object's type for the per-record parser."""
    made: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for i, node in enumerate(fields.values()):
        kind = _checked_as(node)
        made.append((f"f{i}", kind) if _required(node) else (f"f{i}", kind | None, None))
    names = {f"f{i}": name for i, name in enumerate(fields)}
    return msgspec.defstruct("Record", made, rename=names, gc=False, kw_only=True)


def _checked_as(node: Node) -> Any:
    if isinstance(node, Leaf):
        return _python_type(arrow_type(node.kind))
    return _struct(node) if isinstance(node, dict) else list[_checked_as(_optional(node.inner)) | None]  # type: ignore[misc]


def _optional(node: Node) -> Node:
    """An array's element: only one of them is required, if any, and the per-record parser cannot tell which."""
    if isinstance(node, Leaf):
        return Leaf(node.kind, required=False)
    return {name: _optional(inner) for name, inner in node.items()} if isinstance(node, dict) else Items(_optional(node.inner))


def _required(node: Node) -> bool:
    """Whether there is no row without it."""
    if isinstance(node, Leaf):
        return node.required
    return any(map(_required, node.values())) if isinstance(node, dict) else _required(node.inner)


def _python_type(kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_timestamp(kind):
        return Annotated[datetime, msgspec.Meta(tz=True)]
    if pa.types.is_date(kind):
        return date
    return {pa.bool_(): bool, pa.string(): str}.get(kind, float)


def _reason(message: str) -> str:
    """A parser's message, without what is true only of our own input, and without the value, which may be long or private."""
    return _OWN.sub("", message)
