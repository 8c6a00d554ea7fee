"""Spark's settings for one request, on a session that goes on to serve others."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import dagster as dg
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orchestration.resources.spark.failures import SPARK_ERRORS


@contextmanager
def adjusted(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings inside of the block, and its former ones after it.

    Raises dg.Failure that names those that a running session cannot take, such as memory; one that has the wanted value already
    is no matter.
    """
    before: dict[str, str | None] = {}
    fixed = []
    try:
        for key, value in settings.items():
            old = spark.conf.get(key, None)
            if old != value and _set(spark, key, value):
                before[key] = old
            elif old != value:
                fixed.append(key)
        if fixed:
            raise dg.Failure(
                f"The Spark session is running, and cannot take {', '.join(fixed)}: those are fixed when it starts. Nothing was "
                "computed. Set them in the resource's spark_config, or compute this job with a SparkSubmit of its own.",
                allow_retries=False,
            )
        yield
    except BaseException:
        with suppress(*SPARK_ERRORS):  # where Spark is gone, the first error is the one to hear of
            _restore(spark, before)
        raise
    _restore(spark, before)


def _set(spark: SparkSession, key: str, value: str) -> bool:
    try:
        spark.conf.set(key, value)
    except PySparkException as error:
        if "CANNOT_MODIFY" in str(error.getCondition()):
            return False
        raise
    return True


def _restore(spark: SparkSession, before: Mapping[str, str | None]) -> None:
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)
