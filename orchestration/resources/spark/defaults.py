"""How Spark starts when nobody says otherwise: Delta, UTC, a page on loopback, event logs under the Weir home, and silence."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from consumers.clock import SystemClock
from orchestration.local import jars
from orchestration.local.java import java_home
from orchestration.resources.spark.kept import Kept, prune
from orchestration.settings import Settings

_LOG4J = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class Launch:
    """What a resource has fields for. `event_logs` is a folder, empty for no event logs, None for the one under the Weir home."""

    driver_memory: str
    executor_memory: str | None
    event_logs: str | None
    kept: Kept


@dataclass(frozen=True)
class Places:
    """Spark's folders under the Weir home."""

    root: Path

    @staticmethod
    def of(settings: Settings) -> "Places":
        """Those of this installation."""
        return Places(settings.home / "spark")

    @property
    def events(self) -> Path:
        """Event logs, one entry per application, for Spark's history server."""
        return self.root / "events"

    @property
    def logs(self) -> Path:
        """What failed jobs said, and the output of submitted applications."""
        return self.root / "logs"

    @property
    def shipped(self) -> Path:
        """Job code as it was sent."""
        return self.root / "shipped"


def defaults(settings: Settings, launch: Launch, chosen: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings before the user's, which are `chosen`. Fetches jars into the cache if they are neither there nor chosen,
    makes the folder of event logs, and deletes what is too old or too much there.
    """
    conf = {**_COMMON, "spark.driver.memory": launch.driver_memory, "spark.sql.warehouse.dir": _warehouse(settings)}
    if launch.executor_memory:
        conf["spark.executor.memory"] = launch.executor_memory
    if "spark.jars" not in chosen:
        conf["spark.jars"] = ",".join(map(str, delta_jars(settings)))
    local = {**_LOCAL, **_local_files(settings, chosen)} if is_local(chosen) else {}
    return {**conf, **_event_logs(settings, launch), **local}


_COMMON = {
    "spark.app.name": "weir",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.port": "0",
}

_LOCAL = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A session lives for one run: the optimizing compiler takes cores the run needs and rarely pays back. Without it Java keeps
    # only 48 MiB for compiled code, which Spark's generated classes fill in minutes; from then on nothing is compiled any more.
    "spark.driver.extraJavaOptions": (
        f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    ),
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}


_CLASSPATH = "spark.driver.extraClassPath"


def is_local(chosen: Mapping[str, str]) -> bool:
    """Whether everything runs in one process on this machine."""
    return chosen.get("spark.master", "local").startswith("local")


def delta_jars(settings: Settings) -> list[Path]:
    """Delta's jars in the cache, fetched when they are missing. Raises LocalError where they cannot be."""
    return sorted(jars.fetch(settings, "Delta Lake for Spark", jars.DELTA).glob("*.jar"))


def environment(settings: Settings, local: bool) -> dict[str, str]:
    """What Spark's launcher and workers read from the process; Python workers otherwise take the system's interpreter. Raises
    LocalError without a Java.
    """
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    found = {
        "JAVA_HOME": str(java_home(settings)),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    return {**found, "SPARK_LOCAL_IP": "127.0.0.1"} if local else found


def _local_files(settings: Settings, chosen: Mapping[str, str]) -> dict[str, str]:
    """Local files without a process for each: Hadoop's own file system runs `chmod` for whatever it makes, thrice a window."""
    if _CLASSPATH in chosen:
        return {}
    (jar,) = jars.fetch(settings, "local files for Spark", jars.LOCAL_FILES).glob("*.jar")
    return {_CLASSPATH: str(jar), "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"}


def _warehouse(settings: Settings) -> str:
    return (Places.of(settings).root / "warehouse").as_uri()


def _event_logs(settings: Settings, launch: Launch) -> dict[str, str]:
    if launch.event_logs == "":
        return {}
    folder = Path(launch.event_logs) if launch.event_logs else Places.of(settings).events
    folder.mkdir(parents=True, exist_ok=True)
    prune(folder, launch.kept, SystemClock().time())
    return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.as_uri()}
