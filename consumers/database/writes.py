"""Ways to write payloads within a transaction that the caller began: append rows, upsert them by key, or a function of one's own.

A write is called again with the same payloads when its transaction was rolled back, so it must change nothing but the database.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Table

from consumers.database.bulk import insert_rows
from consumers.database.tables import insert_into

T = TypeVar("T")

Row = Mapping[str, Any]
Write = Callable[[Connection, Sequence[T]], None]
"""Writes the payloads of one transaction, in their order."""


def plain_rows(payload: Any) -> Iterable[Row]:
    """The rows of a payload that is an Arrow batch or table, or rows already."""
    if isinstance(payload, pa.RecordBatch | pa.Table):
        found: list[Row] = payload.to_pylist()
        return found
    rows: Iterable[Row] = payload
    return rows


def append(table: Table, rows: Callable[[T], Iterable[Row]] = plain_rows) -> Write[T]:
    """Insert the rows of each payload: column name → value, all with the same columns."""

    def write(connection: Connection, payloads: Sequence[T]) -> None:
        made = _alike(table, chain.from_iterable(map(rows, payloads)))
        if made:
            insert_rows(connection, insert_into(table, connection), table, made)

    return write


def upsert(table: Table, key: Sequence[str], rows: Callable[[T], Iterable[Row]] = plain_rows) -> Write[T]:
    """Insert the rows of each payload, or replace those with the same `key`, which needs a unique index.

    Of several rows with one key the last stays: the one of the highest offset, where a key keeps to a partition. Columns that
    the rows do not have keep what they were. Raises ValueError where the table has no such key.
    """
    names = tuple(key)
    _require_columns(table, names, "the key")
    if not names:
        raise ValueError(f"upsert into table {table.name}: the key is empty; name the columns of a unique index")

    def write(connection: Connection, payloads: Sequence[T]) -> None:
        last = {_key_of(table, names, row): row for row in chain.from_iterable(map(rows, payloads))}
        # In one order everywhere, so that members that write the same keys do not wait for each other in a circle.
        made = _alike(table, (last[each] for each in sorted(last, key=repr)))
        if made:
            _upsert(connection, table, names, made)

    return write


def apply(function: Callable[[Connection, T], None]) -> Write[T]:
    """Call a function with each payload, such as one that adds to balances."""

    def write(connection: Connection, payloads: Sequence[T]) -> None:
        for payload in payloads:
            function(connection, payload)

    return write


def _upsert(connection: Connection, table: Table, key: tuple[str, ...], rows: Sequence[Row]) -> None:
    insert = insert_into(table, connection)
    changed = {name: insert.excluded[name] for name in rows[0] if name not in key}
    if changed:
        insert = insert.on_conflict_do_update(index_elements=key, set_=changed)
    else:
        insert = insert.on_conflict_do_nothing(index_elements=key)
    insert_rows(connection, insert, table, rows)


def _alike(table: Table, rows: Iterable[Row]) -> list[Row]:
    """The rows.

    Raises ValueError where their columns differ, since the database would be told the first row's only, or are not the table's.
    """
    made = list(rows)
    if made:
        _require_columns(table, made[0], "a row")
    for row in made:
        if row.keys() != made[0].keys():
            raise ValueError(f"rows for {table.name} must all have the same columns: {sorted(made[0])} and {sorted(row)}")
    return made


def _key_of(table: Table, key: tuple[str, ...], row: Row) -> tuple[Any, ...]:
    for name in key:
        if name not in row:
            raise ValueError(f"a row for table {table.name} has no column '{name}', which is in the key (but {', '.join(row)})")
    return tuple(row[name] for name in key)


def _require_columns(table: Table, names: Iterable[str], whose: str) -> None:
    there = table.columns.keys()
    for name in names:
        if name not in there:
            raise ValueError(f"table {table.name} has no column '{name}', which {whose} names: it has {', '.join(there)}")
