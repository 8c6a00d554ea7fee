"""A Spark session whose surroundings are set by us: Java, Python, Delta's jars, loopback, UTC, and silence.

The session starts when it is first asked for, so a run that finds nothing to do never starts one.
"""

import os
import sys
from pathlib import Path
from typing import Any

from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field
from pyspark.sql import SparkSession

from orchestration.local import jars
from orchestration.local.java import java_home
from orchestration.settings import Settings

_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy session with Delta. `spark_config` wins over every default, `spark.master`
    included.

    With a local master (the default, two cores) everything stays on loopback. With any other, only what every
    cluster needs is set; Delta's jars are sent along from the cache unless `spark.jars` names others.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Spark's own settings, nested or dotted")

    @property
    def spark_session(self) -> SparkSession:
        """The session; started at the first call. Raises LocalError without Java or Delta's jars."""
        if self._spark_session is None:
            settings = Settings.load()
            chosen: dict[str, Any] = {key: str(value) for key, value in flatten_dict(self.spark_config)}  # type: ignore[no-untyped-call]
            if "spark.remote" in chosen:  # Spark Connect: Java, jars and Delta are the server's affair
                self._spark_session = SparkSession.builder.config(map=chosen).getOrCreate()
                return self._spark_session
            _set_environment(settings, _is_local(chosen))
            session = SparkSession.builder.config(map={**defaults(settings, chosen), **chosen}).getOrCreate()
            session.sparkContext.setLogLevel(chosen.get("spark.log.level", "ERROR"))
            self._spark_session = session
        return self._spark_session

    @property
    def started(self) -> bool:
        """Whether the session was needed so far."""
        return self._spark_session is not None


def defaults(settings: Settings, chosen: dict[str, Any]) -> dict[str, Any]:
    """Spark's settings before the user's. Fetches Delta's jars into the cache if they are neither there nor
    chosen.
    """
    common: dict[str, Any] = {
        "spark.app.name": "weir",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    if "spark.jars" not in chosen:
        found = jars.fetch(settings, "Delta Lake for Spark", jars.DELTA).glob("*.jar")
        common["spark.jars"] = ",".join(str(jar) for jar in sorted(found))
    return {**common, **_LOCAL} if _is_local(chosen) else common


_LOCAL = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # A session lives for one run: the optimizing compiler takes cores the run needs and rarely pays back.
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 {_QUIET}",
    "spark.sql.shuffle.partitions": "4",
    # Delta reads its own log as a Spark job of 50 tasks unless told otherwise: seconds for a table of a few
    # files.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.ui.enabled": "false",
}


def _is_local(chosen: dict[str, Any]) -> bool:
    return str(chosen.get("spark.master", "local")).startswith("local")


def _set_environment(settings: Settings, local: bool) -> None:
    """Spark's launcher and workers read these from the process; Python workers otherwise take the system's
    interpreter.
    """
    os.environ["JAVA_HOME"] = str(java_home(settings))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
