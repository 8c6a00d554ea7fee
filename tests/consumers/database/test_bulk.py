"""Many rows in one statement: what arrives is what was given, whatever the columns' types."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Engine,
    Float,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    Text,
)

from consumers.database.tables import create_tables
from consumers.database.writes import Write, append, upsert
from tests.consumers.database.parts import contents

FIRST: dict[str, Any] = {
    "id": 2**62,
    "small": -3,
    "yes": True,
    "day": date(2013, 6, 1),
    "ratio": 0.1,
    "price": Decimal("12.50"),
    "name": 'ünï"{},\\NULL',
    "bytes": b"\x00\xff{}",
    "long": "",
}
EMPTY = dict.fromkeys(FIRST, None) | {"id": 1}


def key() -> Column[int]:
    return Column("id", BigInteger, primary_key=True, autoincrement=False)


def plain() -> Table:
    types = (SmallInteger, Boolean, Date, Float, Numeric(10, 2), String(50), LargeBinary, Text)
    names = [name for name in FIRST if name != "id"]
    columns = [Column(name, kind) for name, kind in zip(names, types, strict=True)]
    return Table("plain", MetaData(), key(), *columns)


def write(engine: Engine, how: Write[Any], *payloads: list[dict[str, Any]]) -> None:
    with engine.begin() as connection:
        how(connection, payloads)


def test_values_and_nulls_of_plain_types_arrive_as_they_are(engine: Engine) -> None:
    table = plain()
    create_tables(engine, table)
    write(engine, append(table), [FIRST, EMPTY])
    assert contents(engine, table) == [EMPTY, FIRST]


def test_an_upsert_changes_values_of_plain_types(engine: Engine) -> None:
    table = plain()
    create_tables(engine, table)
    write(engine, append(table), [EMPTY])
    write(engine, upsert(table, ["id"]), [FIRST | {"id": 1}, FIRST])
    assert contents(engine, table) == [FIRST | {"id": 1}, FIRST]


def test_a_time_keeps_its_zone_in_postgresql_and_is_utc_in_sqlite(engine: Engine) -> None:
    table = Table("times", MetaData(), key(), Column("at", DateTime(timezone=True)))
    create_tables(engine, table)
    at = datetime(2013, 6, 1, 12, 30, tzinfo=UTC)
    write(engine, append(table), [{"id": 1, "at": at}])
    (row,) = contents(engine, table)
    assert row["at"].replace(tzinfo=UTC) == at


def test_types_that_cannot_travel_as_arrays_go_row_by_row(engine: Engine) -> None:
    table = Table("documents", MetaData(), key(), Column("body", JSON))
    create_tables(engine, table)
    rows = [{"id": 1, "body": {"a": [1, 2]}}, {"id": 2, "body": [[1], [2]]}]
    write(engine, append(table), rows)
    assert contents(engine, table) == rows


def test_defaults_of_columns_that_the_rows_do_not_have_are_kept(engine: Engine) -> None:
    numbers = iter(range(10))
    table = Table("defaults", MetaData(), key(), Column("n", BigInteger, default=lambda: next(numbers)))
    create_tables(engine, table)
    write(engine, append(table), [{"id": 1}, {"id": 2}])
    assert [row["n"] for row in contents(engine, table)] == [0, 1]


def test_a_million_characters_and_ten_thousand_rows_fit_into_one_write(engine: Engine) -> None:
    table = plain()
    create_tables(engine, table)
    write(engine, append(table), [EMPTY | {"id": n, "long": "x" * 100} for n in range(10_000)])
    assert len(contents(engine, table)) == 10_000
