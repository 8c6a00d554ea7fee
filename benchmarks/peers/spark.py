"""Spark Structured Streaming's Kafka source into Delta, in one session: a first query to warm up, then one for each trigger size.

The fastest counts. Exactly once: the checkpoint and Delta's transaction of each batch. The time is that of the triggers alone.
"""

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.task import REQUIRED, Answer, Task

_SCHEMA = (
    "id BIGINT, account STRING, amount_cents BIGINT, price DOUBLE, approved BOOLEAN, booked_at TIMESTAMP, note STRING, "
    "city STRING, currency STRING"
)
_TRIGGERS = (None, 1_000_000, 500_000, 200_000)
"""`maxOffsetsPerTrigger`; None is everything at once."""


def session(task: Task) -> SparkSession:
    """With Delta, quiet, as many cores as there are."""
    settings = {
        "spark.jars": ",".join(task.jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": task.cores,
        "spark.sql.streaming.numRecentProgressUpdates": 1000,
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(task.folder / "spark"),
        "spark.sql.warehouse.dir": str(task.folder / "warehouse"),
        "spark.log.level": "ERROR",
    }
    builder: Any = SparkSession.builder.master(f"local[{task.cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    found: SparkSession = builder.getOrCreate()
    return found


def rows(spark: SparkSession, task: Task, at_most: int | None) -> DataFrame:
    """The topic as typed rows that have all that is required."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", task.bootstrap_servers)
    reader = reader.option("subscribe", task.topic).option("startingOffsets", "earliest")
    reader = reader.option("kafka.isolation.level", "read_committed")
    if at_most is not None:
        reader = reader.option("maxOffsetsPerTrigger", at_most)
    parsed = reader.load().select(
        F.from_json(F.col("value").cast("string"), _SCHEMA).alias("row"), "partition", "offset", "timestamp"
    )
    return parsed.select(
        "row.*",
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.date_format("timestamp", "yyyy-MM-dd-HH").alias("_window"),
    ).dropna(subset=list(REQUIRED))


def measure(spark: SparkSession, task: Task, at_most: int | None, folder: Path) -> tuple[float, float]:
    """Seconds, and CPU seconds of the JVM, of a query from nothing to the end of the topic."""
    before = _jvm_seconds(spark)
    query = (
        rows(spark, task, at_most)
        .writeStream.format("delta")
        .partitionBy("_window")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()
    steps = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress if progress["numInputRows"]]
    return sum(steps) / 1000, _jvm_seconds(spark) - before


def run(task: Task) -> Answer:
    """The fastest of all."""
    spark = session(task)
    cold, _ = measure(spark, task, None, task.folder / "cold")
    found = {}
    for at_most in _TRIGGERS:
        found[at_most] = measure(spark, task, at_most, task.folder / str(at_most))
    best = min(found, key=lambda one: found[one][0])
    seconds, cpu = found[best]
    answer = Answer(task.records, 0.0, seconds, cpu, table=str(task.folder / str(best) / "table"))
    answer.note = f"maxOffsetsPerTrigger {best or 'unset'}; " + ", ".join(
        f"{name} {task.records / took / 1000:.0f} k/s"
        for name, took in {"cold": cold, **{str(one or "unset"): each[0] for one, each in found.items()}}.items()
    )
    _end(spark)
    return answer


def _jvm_seconds(spark: SparkSession) -> float:
    fields = Path(f"/proc/{_process(spark).pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _process(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway
    return gateway.proc


def _end(spark: SparkSession) -> None:
    """With the JVM, so that what it used is accounted to this process."""
    process = _process(spark)
    spark.stop()
    process.stdin.close()
    process.wait(60)


if __name__ == "__main__":
    run(Task.given()).print()
