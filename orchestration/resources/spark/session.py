"""A Spark session for the run: in the run's own process, with executors of a standalone cluster, or through Spark Connect.

It starts when it is first asked for, so a run that finds nothing to do never starts one, and all windows of a run share it.
"""

import logging
import os
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from consumers.clock import SystemClock
from orchestration.resources.spark.adjust import adjusted
from orchestration.resources.spark.defaults import Launch, Places, defaults, environment, is_local
from orchestration.resources.spark.failures import SPARK_ERRORS, failure
from orchestration.resources.spark.kept import Kept, prune
from orchestration.resources.spark.runtime import Context
from orchestration.resources.spark.secrets import plain, secret_arguments
from orchestration.resources.spark.shipping import found_in, shipped
from orchestration.resources.spark.sizes import UNKNOWN_CORES, bytes_of, cores_of, sized
from orchestration.settings import Settings
from spark_jobs import runner
from spark_jobs.request import Request, Result

_TALKATIVE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")  # they print Java's stack beside the error that is raised


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy session with Delta. `spark_config` wins over every default, `spark.master` and `spark.remote` too.

    With a local master (the default, two cores) everything stays on loopback. With any other, only what every cluster needs is
    set; Delta's jars and the packages with the jobs are sent along. With Spark Connect, Java, jars and Delta are the server's
    affair.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict, description="Spark's own settings, nested or dotted")
    driver_memory: str = Field(default="2g", description="of the driver, which with a local master computes everything")
    executor_memory: str | None = Field(default=None, description="of each executor on a cluster")
    event_logs: str | None = Field(default=None, description="folder of event logs; empty: none; default: under the Weir home")
    keep_days: float = Field(default=14, description="event logs and logs of failures that are older are deleted")
    keep_megabytes: float = Field(default=512, description="the oldest are deleted until no more is left, per folder")
    packages: list[str] = Field(default=["spark_jobs"], description="packages with job functions, to send to other machines")

    def compute(self, context: Context, request: Request, settings: Mapping[str, str] | None = None) -> Result:
        """See `SparkRuntime`. Starts the session when there is none yet, then with `settings` that only a start can set."""
        places, kept = Places.of(Settings.load()), self._kept()
        try:
            spark = self._session or self._start(dict(settings or {}))
            with adjusted(spark, {**self._sized(spark, request), **(settings or {})}):
                return runner.run(spark, request)
        except SPARK_ERRORS as error:
            prune(places.logs, kept, SystemClock().time())
            raise failure(request.job, error, places.logs / f"{request.job}-{uuid4().hex[:12]}.txt") from None

    @property
    def spark_session(self) -> SparkSession:
        """The session; started at the first call. Raises LocalError without Java or Delta's jars."""
        return self._session or self._start({})

    @property
    def started(self) -> bool:
        """Whether the session was needed so far."""
        return self._spark_session is not None

    def stop(self) -> None:
        """End the session and its JVM, so that the next call starts another one."""
        session, self._spark_session = self._session, None
        if session is not None:
            with suppress(*SPARK_ERRORS):  # what was killed has stopped
                session.stop()
        if self._remote():
            os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)  # PySpark would take the next session for a remote one
        else:
            forget_jvm()

    @property
    def _session(self) -> SparkSession | None:
        session: SparkSession | None = self._spark_session
        return session

    def _chosen(self) -> dict[str, str]:
        return {key: str(value) for key, value in flatten_dict(self.spark_config)}  # type: ignore[no-untyped-call]

    def _remote(self) -> bool:
        return "spark.remote" in self._chosen()

    def _kept(self) -> Kept:
        return Kept(self.keep_days, self.keep_megabytes)

    def _start(self, extra: Mapping[str, str]) -> SparkSession:
        settings, chosen = Settings.load(), self._chosen()
        session = self._connect(settings, chosen) if self._remote() else self._launch(settings, {**chosen, **extra})
        self._spark_session = session
        return session

    def _launch(self, settings: Settings, chosen: Mapping[str, str]) -> SparkSession:
        os.environ.update(environment(settings, is_local(chosen)))
        if is_local(chosen):
            os.environ["PYTHONPATH"] = _with_folders(os.environ.get("PYTHONPATH"), found_in(self.packages))
        launch = Launch(self.driver_memory, self.executor_memory, self.event_logs, self._kept())
        conf = {**defaults(settings, launch, chosen), **chosen}
        with secret_arguments(conf, Places.of(settings).root) as secret, _launched_with(secret), _interrupts_kept():
            session = SparkSession.builder.config(map={**plain(conf)}).getOrCreate()
        for name in _TALKATIVE:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
        session.sparkContext.setLogLevel(chosen.get("spark.log.level", "ERROR"))
        if not is_local(chosen):
            session.sparkContext.addPyFile(str(shipped(Places.of(settings).shipped, self.packages)))
        return session

    def _connect(self, settings: Settings, chosen: Mapping[str, str]) -> SparkSession:
        session = SparkSession.builder.config(map=dict(chosen)).getOrCreate()
        session.conf.set("spark.sql.session.timeZone", chosen.get("spark.sql.session.timeZone", "UTC"))
        session.addArtifacts(str(shipped(Places.of(settings).shipped, self.packages)), pyfile=True)
        return session

    def _sized(self, spark: SparkSession, request: Request) -> dict[str, str]:
        """Settings by size, but for those that the resource chose."""
        read = bytes_of(request)
        chosen = self._chosen()
        return {} if read is None else {key: value for key, value in sized(read, self._cores(spark)).items() if key not in chosen}

    def _cores(self, spark: SparkSession) -> int:
        if self._remote():
            return cores_of(self._chosen()) or UNKNOWN_CORES
        return spark.sparkContext.defaultParallelism


def _with_folders(path: str | None, folders: Iterable[Path]) -> str:
    known = path.split(os.pathsep) if path else []
    return os.pathsep.join([*known, *(str(folder) for folder in folders if str(folder) not in known)])


@contextmanager
def _launched_with(arguments: Sequence[str]) -> Iterator[None]:
    """More arguments for the spark-submit that PySpark starts the JVM with."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    if arguments:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(arguments)} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Dagster's handler of interrupts stays: PySpark's own waits for the call that it interrupts, which may take hours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def forget_jvm() -> None:
    """End this process's JVM, dead or alive, and whatever PySpark knows of it."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait()
