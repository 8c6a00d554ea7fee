"""Many rows in one statement."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    CursorResult,
    Date,
    DateTime,
    Executable,
    Insert,
    Integer,
    LargeBinary,
    Numeric,
    Row,
    String,
    Table,
    Time,
    Uuid,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

_SCALARS = (Boolean, Date, DateTime, Integer, LargeBinary, Numeric, String, Time, Uuid)


def insert_rows(
    connection: Connection,
    statement: postgresql.Insert | sqlite.Insert,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    returning: Sequence[Column[Any]] = (),
) -> Sequence[Row[Any]]:
    """Execute an insert for rows (at least one) that all have the same columns; the `returning` columns of what it inserted.

    In PostgreSQL the columns travel as arrays, where their types allow it: several times as fast as row by row.
    """
    names = list(rows[0])
    if connection.dialect.name != "postgresql" or not _as_arrays(table, names):
        return _returned(connection.execute(_telling(statement, returning), rows))
    # The prefix keeps the parameters apart from those that the statement gives columns itself.
    source = select(*[func.unnest(bindparam(f"all_{n}", type_=postgresql.ARRAY(table.c[n].type))).label(n) for n in names])
    arrays = {f"all_{n}": [row[n] for row in rows] for n in names}
    return _returned(connection.execute(_telling(statement.from_select(names, source), returning), arrays))


def _telling(statement: Insert, returning: Sequence[Column[Any]]) -> Executable:
    return statement.returning(*returning) if returning else statement


def _returned(result: CursorResult[Any]) -> Sequence[Row[Any]]:
    return result.all() if result.returns_rows else ()


def _as_arrays(table: Table, names: Sequence[str]) -> bool:
    """Whether each of these columns has a plain type, and every other one is left to the database."""
    plain = all(name in table.c and isinstance(table.c[name].type, _SCALARS) for name in names)
    return plain and not any(column.default is not None for column in table.c if column.name not in names)
