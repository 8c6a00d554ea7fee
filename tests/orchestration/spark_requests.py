"""A small staged table, job functions in a package of the test's own, and requests for them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spark_jobs.request import Request, Source

PACKAGES = ["spark_jobs", "dagster_pipes", "made_jobs"]
WINDOWS = ("2013-01-01", "2013-01-02")

# `halting` says who computes and waits for leave, so that a test can kill that very process.
JOBS = '''
import os
import pathlib
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def share(value: float) -> float:
    """Sent to Python workers by its name, so that they need this package."""
    return value / 7


def totals(flights: DataFrame) -> DataFrame:
    shares = F.udf(share, "double")("delay")
    return flights.groupBy("_window", "origin").agg(F.sum(shares).alias("total"), F.count("*").alias("flights"))


def halting(flights: DataFrame, *, folder: str) -> DataFrame:
    def wait(value: float) -> float:
        pathlib.Path(folder, f"worker-{os.getpid()}").touch()
        deadline = time.monotonic() + 120
        while not pathlib.Path(folder, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return value

    return totals(flights.withColumn("delay", F.udf(wait, "double")("delay")))


def divided(flights: DataFrame) -> DataFrame:
    def bad(value: float) -> float:
        return value / 0

    return flights.select("_window", F.udf(bad, "double")("delay").alias("x"))


def missing(flights: DataFrame) -> DataFrame:
    return flights.groupBy("_window", "nope").count()


def refused(flights: DataFrame) -> DataFrame:
    raise ValueError("no such carrier")
'''


# A run in a process of its own that submits: the master, Spark's settings as JSON, the request as JSON.
RUN = f"""
import json
import sys
import dagster as dg
from orchestration.resources.spark import SparkSubmit
from spark_jobs.request import Request

@dg.op
def compute(context):
    runtime = SparkSubmit(master=sys.argv[1], spark_config=json.loads(sys.argv[2]), packages={PACKAGES})
    runtime.compute(context, Request.from_json(sys.argv[3]))

@dg.job
def job():
    compute()

job.execute_in_process()
"""


@contextmanager
def made_jobs(folder: Path) -> Iterator[None]:
    """The package can be imported inside of the block, by this process alone."""
    package = folder / "made_jobs" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(JOBS)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("made_jobs", None)


def staged(path: Path) -> Source:
    """A table of two windows and two files each, whose sums depend on the order in which they are added up."""
    for file in range(2):
        rows = {
            "origin": ["JFK", "EWR", "LGA"] * 40,
            "delay": [0.1 * number + file / 3 for number in range(120)],
            "_tombstone": [False] * 120,
            "_window": [WINDOWS[number // 3 % 2] for number in range(120)],
        }
        write_deltalake(str(path), pa.table(rows), partition_by=["_window"], mode="append")
    return Source(str(path), 1, windows=WINDOWS)


def request(function: str, flights: Source, attempt: Path, **parameters: Any) -> Request:
    """A request in mode window that writes to the folder `attempt`."""
    prints = {window: f"print-{window}" for window in WINDOWS}
    inputs = {"flights": flights}
    name = f"made_jobs.{function}"
    return Request(
        function, name, "window", inputs, str(attempt.parent), str(attempt), fingerprints=prints, parameters=parameters
    )


def rows_of(attempt: Path) -> Sequence[str]:
    """The rows in full, in an order of their own: equal only when every bit is."""
    return sorted(map(repr, DeltaTable(str(attempt)).to_pyarrow_table().to_pylist()))
