"""A table's columns and a definition's: what is added by itself, and what means that the table must be built again."""

from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError

from consumers.config import Consumer
from consumers.errors import StorageError
from consumers.staging.writing import HOOKS

_ATTEMPTS = 20


def fit_columns(table: DeltaTable, schema: pa.Schema, consumer: Consumer | None = None) -> None:
    """Add the columns of `schema` that the table lacks; rows that are there already have nulls in them.

    Several processes may do so at once. Raises `StorageError`, with nothing changed, where a column has another type or is in the
    table only; it says how `consumer` gets a table that fits.
    """
    for _ in range(_ATTEMPTS):
        _require_same(table, schema, consumer)
        present = set(_columns(table))
        missing = [f for f in schema if f.name not in present]
        if not missing:
            return
        # Where that fails, somebody else changed the columns, most likely in just this way.
        with suppress(CommitFailedError):
            table.alter.add_columns(
                DeltaSchema.from_arrow(pa.schema(missing)).fields,
                post_commithook_properties=HOOKS,
            )
        table.update_incremental()
    raise StorageError(
        f"table {table.table_uri}: its columns are being changed again and again by somebody else. Nothing was written."
    )


def require_types(table: DeltaTable, schema: pa.Schema, consumer: Consumer) -> None:
    """Raise `StorageError` where the loaded table has another type for a column of `schema`, as after a swap.

    Columns that only the table has are left to it: a member that does not know a new column yet may go on.
    """
    if differing := _of_other_types(_columns(table), schema):
        raise _refusal(table, differing, consumer)


def _require_same(table: DeltaTable, schema: pa.Schema, consumer: Consumer | None) -> None:
    present = _columns(table)
    differing = _of_other_types(present, schema)
    differing += [f"{name} (in the table only)" for name in present.keys() - set(schema.names)]
    if differing:
        raise _refusal(table, differing, consumer)


def _of_other_types(present: dict[str, pa.DataType], schema: pa.Schema) -> list[str]:
    return [
        f"{f.name} ({present[f.name]} in the table, {f.type} by the definition)"
        for f in schema
        if f.name in present and not _same(present[f.name], f.type)
    ]


def _refusal(table: DeltaTable, differing: list[str], consumer: Consumer | None) -> StorageError:
    return StorageError(
        f"table {table.table_uri} does not have the definition's columns: {'; '.join(sorted(differing))}. Nothing was "
        f"written. Change the definition back, or {_otherwise(consumer)}."
    )


def _otherwise(consumer: Consumer | None) -> str:
    if consumer is None:
        return "build the table again under another name"
    if consumer.of_several:
        return "use a new name, which stages into a new table: tables of several topics have no shadows"
    return f"build the table again: launch the job shadow_{consumer.name}, then swap_{consumer.name}"


def _columns(table: DeltaTable) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in pa.schema(table.schema().to_arrow())}


def _same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two Arrow types are one Delta type. Names of list items and view types are no part of a Delta type."""
    return _delta_name(stored) == _delta_name(wanted)


def _delta_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_delta_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {_delta_name(f.type)}' for f in kind)}>"
    return str(kind).replace("large_", "").replace("_view", "")
