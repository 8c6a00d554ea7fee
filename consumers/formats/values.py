"""What a column may hold beyond its Arrow type: a value where one is required, finite numbers, years that everybody knows."""

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc


def in_calendar(times: pa.ChunkedArray) -> bool:
    """Whether all are in the years that Delta's statistics, Spark and Python can hold. JSON's reader also takes year 0."""
    extent = pc.min_max(pc.year(times))
    low, high = extent["min"].as_py(), extent["max"].as_py()
    return low is None or (low >= date.min.year and high <= date.max.year)


def unfit(rows: pa.Table) -> dict[int, str]:
    """By index, why a row cannot be in a table with this schema."""
    found: dict[int, str] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for reason, bad in _faults(field, column):
            found |= dict.fromkeys(pc.indices_nonzero(bad).to_pylist(), f"column `{field.name}`: {reason}")
    return found


def _faults(field: pa.Field, column: pa.ChunkedArray) -> list[tuple[str, pa.ChunkedArray]]:
    faults = []
    if not field.nullable and column.null_count:
        faults.append(("required, and the transform made it null", column.is_null()))
    if pa.types.is_floating(field.type):
        faults.append(("not a finite number", pc.invert(pc.is_finite(column))))
    if pa.types.is_temporal(field.type) and not in_calendar(column):
        years = pc.year(column)
        outside = pc.or_(pc.less(years, date.min.year), pc.greater(years, date.max.year))
        faults.append(("not in the years 1 to 9999 (UTC)", outside))
    return faults
