"""Functions that the tests name in definitions."""

import pyarrow as pa
import pyarrow.compute as pc

from consumers.errors import InvalidRecord, InvalidRecords


def doubled(rows: pa.Table) -> pa.Table:
    return rows.set_column(0, "a", pc.multiply(rows["a"], 2))


def parsed(rows: pa.Table) -> pa.Table:
    """`cents` and `day` of `euros` and `at`, `_partition` and `_offset` into columns of the schema."""
    cents = pc.multiply(rows["euros"], 100).cast(pa.int64())
    return pa.table({"day": rows["at"].cast(pa.date32()), "cents": cents, "offset": rows["_offset"]})


def without_odd(rows: pa.Table) -> pa.Table:
    places = zip(*(rows[name].to_pylist() for name in ("a", "_partition", "_offset")), strict=True)
    if bad := [InvalidRecord(partition, offset, f"{a} is odd") for a, partition, offset in places if a % 2]:
        raise InvalidRecords(bad)
    return rows


def one_by_one(rows: pa.Table) -> pa.Table:
    for a, partition, offset in zip(*(rows[name].to_pylist() for name in ("a", "_partition", "_offset")), strict=True):
        if a % 2:
            raise InvalidRecord(partition, offset, f"{a} is odd")
    return rows


def halved(rows: pa.Table) -> pa.Table:
    """`a` where it is even, else null; and its inverse, which of 0 is infinite."""
    even = pc.equal(pc.bit_wise_and(rows["a"], 1), 0)
    halves = pc.if_else(even, pc.divide(rows["a"], 2), pa.scalar(None, pa.int64()))
    return pa.table({"half": halves, "inverse": pc.divide(1.0, rows["a"].cast(pa.float64()))})


def shorter(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def other_columns(rows: pa.Table) -> pa.Table:
    return rows.select(["_offset"])


def as_text(rows: pa.Table) -> pa.Table:
    return rows.set_column(0, "a", rows["a"].cast(pa.string()))


def as_list(rows: pa.Table) -> list[dict[str, object]]:
    return rows.to_pylist()  # type: ignore[no-any-return]


def broken(rows: pa.Table) -> pa.Table:
    raise KeyError("b")


not_a_function = 1
