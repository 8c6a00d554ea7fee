"""Every request as a Spark application of its own, by `spark-submit`: here, on a standalone cluster, YARN or Kubernetes."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import dagster as dg
from dagster_spark.utils import flatten_dict
from pydantic import Field, PrivateAttr

from consumers.clock import SystemClock
from orchestration.local import jars
from orchestration.resources.spark import leash
from orchestration.resources.spark.defaults import Launch, Places, defaults, environment, is_local
from orchestration.resources.spark.failures import first_cause, told
from orchestration.resources.spark.kept import Kept, prune
from orchestration.resources.spark.pipes import Heard, exchange
from orchestration.resources.spark.runtime import Context
from orchestration.resources.spark.secrets import plain, secret_arguments
from orchestration.resources.spark.shipping import shipped
from orchestration.resources.spark.sizes import UNKNOWN_CORES, bytes_of, cores_of, sized
from orchestration.settings import Settings
from spark_jobs.request import Request, Result

_TAIL_BYTES = 64 * 1024
_NOISE = re.compile(r"Picked up |WARNING: |\d\d/\d\d/\d\d [\d:]+ (INFO|WARN) |\s*warnings\.warn")


class SparkSubmit(dg.ConfigurableResource[None]):
    """`spark-submit` with Delta's jars and the packages with the jobs. `spark_config` wins over every default.

    The application reports through files under the Weir home, so with `deploy_mode` cluster the driver's machine must see that
    folder under the same path, as it must see the tables. When the run ends or is terminated, so does an application in client
    mode, with its executors.
    """

    master: str = Field(default="local[2]", description="local[n], spark://host:port, yarn or k8s://…")
    deploy_mode: Literal["client", "cluster"] = Field(default="client", description="where the driver runs")
    spark_config: dict[str, Any] = Field(default_factory=dict, description="Spark's own settings, nested or dotted")
    driver_memory: str = Field(default="2g", description="of the driver, which with a local master computes everything")
    executor_memory: str | None = Field(default=None, description="of each executor on a cluster")
    event_logs: str | None = Field(default=None, description="folder of event logs; empty: none; default: under the Weir home")
    keep_days: float = Field(default=14, description="event logs and applications' output that are older are deleted")
    keep_megabytes: float = Field(default=512, description="the oldest are deleted until no more is left, per folder")
    packages: list[str] = Field(default=["spark_jobs", "dagster_pipes"], description="packages to send along")
    py_files: list[str] = Field(default=[], description="more for --py-files: zips, eggs or modules")
    arguments: list[str] = Field(default=[], description="any other arguments of spark-submit, such as --archives")
    _used: bool = PrivateAttr(default=False)

    def compute(self, context: Context, request: Request, settings: Mapping[str, str] | None = None) -> Result:
        """See `SparkRuntime`. All `settings` are taken, since every request starts anew."""
        self._used = True
        installed = Settings.load()
        places = Places.of(installed)
        prune(places.logs, Kept(self.keep_days, self.keep_megabytes), SystemClock().time())
        folder = places.logs / f"{request.job}-{uuid4().hex[:12]}"
        folder.mkdir(parents=True)
        log = folder / "output.txt"
        conf = self._conf(installed, request, settings or {})
        with (
            exchange(context, folder, {"request": request.to_json()}) as (report, heard),
            secret_arguments(conf, folder) as secret,
        ):
            command = [*self.command(installed, request, settings or {}, secret), *report]
            context.log.info(f"spark-submit to {self.master}; its output: {log}")
            code = _run(command, {**os.environ, **environment(installed, is_local({"spark.master": self.master}))}, log)
        if code or heard.result is None:
            raise told(request.job, _cause(code, heard, log), log)
        return Result.from_json(heard.result)

    @property
    def started(self) -> bool:
        """Whether anything was submitted so far."""
        return self._used

    def command(
        self, installed: Settings, request: Request, settings: Mapping[str, str], secret: Sequence[str] = ()
    ) -> Sequence[str]:
        """What is run, but for the arguments that tell the application where to report; `secret` are those of secret settings."""
        conf = plain(self._conf(installed, request, settings))
        return [
            str(jars.spark_jars().parent / "bin" / "spark-submit"),
            *secret,
            *("--master", self.master, "--deploy-mode", self.deploy_mode, "--name", f"weir {request.job}"),
            *("--py-files", ",".join([str(shipped(Places.of(installed).shipped, self.packages)), *self.py_files])),
            *(word for key, value in sorted(conf.items()) for word in ("--conf", f"{key}={value}")),
            *self.arguments,
            str(_entry()),
        ]

    def _conf(self, installed: Settings, request: Request, settings: Mapping[str, str]) -> dict[str, str]:
        chosen = {key: str(value) for key, value in flatten_dict(self.spark_config)}  # type: ignore[no-untyped-call]
        chosen = {**chosen, **settings, "spark.master": self.master}
        launch = Launch(self.driver_memory, self.executor_memory, self.event_logs, Kept(self.keep_days, self.keep_megabytes))
        read = bytes_of(request)
        by_size = {} if read is None else sized(read, _cores(self.master) or cores_of(chosen) or UNKNOWN_CORES)
        conf = {**defaults(installed, launch, chosen), **by_size, **chosen}
        return {key: value for key, value in conf.items() if key not in ("spark.master", "spark.app.name")}


def _entry() -> Path:
    spec = util.find_spec("spark_jobs.main")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def _cores(master: str) -> int | None:
    if not master.startswith("local"):
        return None
    inside = master.removeprefix("local").strip("[]").split(",")[0] or "1"
    return os.cpu_count() if inside == "*" else int(inside)


def _run(command: Sequence[str], environ: Mapping[str, str], log: Path) -> int:
    """Run to the end, the output in `log`; its exit code. It ends with us, however we end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", leash.__file__, *command], env=environ, stdin=subprocess.PIPE, stdout=output, stderr=output
        )
    assert process.stdin is not None
    try:
        return process.wait()
    finally:  # also when the run was terminated: closing its end lets the leash end the application
        process.stdin.close()
        process.wait()


def _cause(code: int, heard: Heard, log: Path) -> list[str]:
    if heard.error is not None:
        return first_cause(heard.error["message"]) + [line.rstrip() for line in heard.error["stack"][-1:]]
    ended = f"spark-submit ended with code {code}" + (f", killed by signal {code - 128}" if code > 128 else "")
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        tail = file.read().decode(errors="replace")
    said = "\n".join(line for line in tail.splitlines() if not _NOISE.match(line))
    return [ended if code else "The application ended well, but reported no result.", *first_cause(said)[-8:]]
