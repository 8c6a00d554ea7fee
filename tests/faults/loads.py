"""Whether a Delta table is whole: its log has every version, and independent readers load it and find the same."""

import re
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from consumers.errors import WeirError
from orchestration import sql

_VERSION = re.compile(r"\d{20}\.json")
_UNREADABLE = (DeltaError, WeirError, OSError, pa.ArrowException, ValueError)


def broken(table: Path, spark: bool = False) -> list[str]:
    """What is wrong with the table, in words; nothing where there is no table. `spark` asks a third reader, slowly."""
    if not (table / "_delta_log").is_dir():
        return []
    found = [f"{table.name}: version {version} is not in the log" for version in missing_versions(table)]
    counts: dict[str, list[int]] = {}
    for name, read in {"delta-rs": _by_delta_rs, "DuckDB": _by_duckdb, **({"Spark": _by_spark} if spark else {})}.items():
        try:
            counts[name] = read(table)
        except _UNREADABLE as error:
            found.append(f"{table.name}: {name} cannot load it: {error}")
    if len(set(map(tuple, counts.values()))) > 1:
        found.append(f"{table.name}: readers count its values differently: {counts}")
    return found


def missing_versions(table: Path) -> list[int]:
    """Versions from the first to the newest that have no file in the log."""
    versions = {int(file.stem) for file in (table / "_delta_log").iterdir() if _VERSION.fullmatch(file.name)}
    return sorted(set(range(max(versions, default=0) + 1)) - versions)


def _by_delta_rs(table: Path) -> list[int]:
    """How many values each column has, in the order of the columns."""
    rows = DeltaTable(table).to_pyarrow_table()
    return [len(column) - column.null_count for column in rows.columns]


def _by_duckdb(table: Path) -> list[int]:
    [counts] = sql.query('SELECT count(COLUMNS(*)) FROM "looked_at"', {"looked_at": table}).fetchall()
    return list(counts)


def _by_spark(table: Path) -> list[int]:
    from pyspark.sql import functions as F

    from orchestration.resources.spark import SparkResource

    spark = SparkResource(event_logs="")
    try:
        rows = spark.spark_session.read.format("delta").load(str(table))
        return list(rows.select(*(F.count(F.col(f"`{name}`")) for name in rows.columns)).first() or ())
    finally:
        spark.stop()
