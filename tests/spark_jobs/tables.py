"""Small input tables, requests and what an attempt holds; and a stand-in for the publisher."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.request import Mode, Request, Result, Source
from spark_jobs.runner import run

Rows = list[dict[str, Any]]


def stage(path: Path, rows: Rows, partition: str | None = "_window") -> tuple[str, ...]:
    """Append rows in a commit; return the paths of the files that it added, as the log has them."""
    before = set(paths(path)) if DeltaTable.is_deltatable(str(path)) else set()
    write_deltalake(
        str(path),
        pa.Table.from_pylist(rows),
        partition_by=[partition] if partition else None,
        mode="append",
        schema_mode="merge",
    )
    return tuple(sorted(set(paths(path)) - before))


def paths(path: Path) -> list[str]:
    """The active files."""
    return [str(row["path"]) for row in pa.table(DeltaTable(str(path)).get_add_actions()).to_pylist()]


def rows_of(path: Path | str) -> Rows:
    """All rows, in the order of their values."""
    rows: Rows = pa.table(DeltaTable(str(path)).to_pyarrow_table()).to_pylist()
    return sorted(rows, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))


def partition_columns(path: str) -> list[str]:
    """By what the table is partitioned."""
    return list(DeltaTable(path).metadata().partition_columns)


def dotted(function: Callable[..., DataFrame]) -> str:
    """The path that a job's YAML would have."""
    return f"{function.__module__}.{function.__name__}"


@dataclass
class Lab:
    """A folder of tables; every run writes an attempt of its own into the output's folder."""

    spark: SparkSession
    root: Path
    attempts: int = 0

    @property
    def output(self) -> Path:
        return self.root / "out"

    def source(self, name: str = "numbers", **options: Any) -> Source:
        path = self.root / name
        return Source(str(path), **{"version": DeltaTable(str(path)).version(), **options})

    def request(self, function: Callable[..., DataFrame], mode: Mode, inputs: Mapping[str, Source], **options: Any) -> Request:
        self.attempts += 1
        attempt = str(self.output / f"attempt-{self.attempts}")
        return Request("sums", dotted(function), mode, inputs, str(self.output), attempt, **options)

    def run(self, request: Request) -> Result:
        """By way of JSON, as it travels to a cluster and back."""
        return Result.from_json(run(self.spark, Request.from_json(request.to_json())).to_json())

    def publish(self, request: Request, result: Result) -> int:
        """Put the attempt in place of the buckets it replaces; return the output's version."""
        written = pa.table(DeltaTable(request.attempt).to_pyarrow_table())
        chosen = ", ".join(f"'{bucket}'" for bucket in result.buckets)
        predicate = f"_bucket IN ({chosen})" if request.output_version >= 0 else None
        write_deltalake(str(self.output), written, mode="overwrite", predicate=predicate, partition_by=["_bucket"])
        return DeltaTable(str(self.output)).version()

    def merge(self, request: Request) -> Result:
        """Run and publish, starting from the output as it is."""
        exists = DeltaTable.is_deltatable(str(self.output))
        request = replace(request, output_version=DeltaTable(str(self.output)).version() if exists else -1)
        result = self.run(request)
        self.publish(request, result)
        return result


def without(rows: Iterable[Mapping[str, Any]], *names: str) -> Rows:
    """The rows without some columns."""
    return [{name: value for name, value in row.items() if name not in names} for row in rows]
