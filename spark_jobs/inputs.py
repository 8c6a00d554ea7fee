"""Reads an input table at the version that a request pins: all of it, or some windows, or the rows of some files."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.request import Source
from spark_jobs.staged import WINDOW


def read(spark: SparkSession, source: Source) -> DataFrame:
    """The rows that `source` names. A file that a vacuum took raises Spark's PATH_NOT_FOUND."""
    parts = []
    if source.windows is not None or source.files is None:
        parts.append(_rows(spark, source))
    if source.files is not None:
        parts.extend(_file_rows(spark, source, source.files))
    return _together(parts)


def at_version(spark: SparkSession, path: str, version: int) -> DataFrame:
    """The Delta table as it was."""
    return spark.read.format("delta").option("versionAsOf", version).load(path)


def _together(parts: Sequence[DataFrame]) -> DataFrame:
    """A union as flat as it can be: thousands of unions inside of each other would end the stack of Spark's planner."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return _together(parts[:half]).unionByName(_together(parts[half:]))


def _rows(spark: SparkSession, source: Source) -> DataFrame:
    table = at_version(spark, source.path, source.version)
    return table if source.windows is None else table.where(F.col(WINDOW).isin(list(source.windows)))


def _file_rows(spark: SparkSession, source: Source, files: Iterable[str]) -> Iterator[DataFrame]:
    """Read as plain Parquet: Delta would go through the log of every file that the table ever had.

    A job's output keeps each attempt's files in a folder of its own, and Spark finds partition values only below one base path,
    so every such folder is a frame. The values come from the paths; windows, fingerprints and buckets are ASCII, and safe there.
    Without files there is an empty frame.
    """
    schema = _schema(spark, source)
    paths = sorted(unquote(file) for file in files)
    if not paths:
        yield spark.createDataFrame([], schema)
    for folder, group in groupby(paths, _folder):
        base = f"{source.path}/{folder}".rstrip("/")
        # The table's own types for partition columns, too: Spark would otherwise make a date of the text 2013-01-01.
        reader = spark.read.schema(schema).option("basePath", base).option("__globPaths__", "false")
        yield reader.parquet(*(f"{source.path}/{path}" for path in group)).select(*schema.names)


def _schema(spark: SparkSession, source: Source) -> StructType:
    """Delta writes its schema as Spark does."""
    if source.schema:
        return StructType.fromJson(json.loads(source.schema))
    return at_version(spark, source.path, source.version).schema


def _folder(path: str) -> str:
    """What stands before the first partition folder: `attempt-1` of `attempt-1/_window=2013-01-01/part.parquet`."""
    folders = path.split("/")[:-1]
    first = next((at for at, name in enumerate(folders) if "=" in name), len(folders))
    return "/".join(folders[:first])
