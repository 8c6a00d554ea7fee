"""Environments of the contestants that are not ours: made once under Weir's cache, by the ordinary clients, at fixed versions."""

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestration.local import jars
from orchestration.local.errors import LocalError
from orchestration.local.java import java_home
from orchestration.settings import PROJECT, Settings


class NotToBeHad(Exception):
    """A contestant cannot be had on this machine; says why."""


@dataclass(frozen=True)
class Environment:
    """Packages and jars of fixed versions, and, with `dlt_source`, a source that dlt's own command puts beside them."""

    name: str
    requirements: tuple[str, ...]
    jars: tuple[str, ...] = ()
    dlt_source: str | None = None


@dataclass(frozen=True)
class Prepared:
    """How a contestant is started: its Python, the variables that are added, and the jars that it is given."""

    python: Path
    variables: Mapping[str, str]
    jars: tuple[str, ...] = ()


OURS = Prepared(Path(sys.executable), {})


def prepared(environment: Environment | None, settings: Settings, dlt_sources: str | None) -> Prepared:
    """The environment, made if it is not there; None is ours. Raises NotToBeHad."""
    if environment is None:
        return OURS
    kind = zlib.crc32(repr((environment, sys.version_info[:2], dlt_sources)).encode())
    folder = settings.cache / "peers" / f"{environment.name}-{kind:08x}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _command(environment, sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, folder)
        _command(
            environment, sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, *environment.requirements
        )
        if environment.dlt_source is not None:
            _dlt_init(environment, folder, dlt_sources)
        (folder / ".ready").touch()
    variables = {"PYTHONPATH": str(folder / "project")}
    if not environment.jars:
        return Prepared(python, variables)
    return Prepared(
        python,
        variables | {"JAVA_HOME": str(java_home(settings)), "SPARK_LOCAL_IP": "127.0.0.1"},
        _jars(environment, settings, folder),
    )


def _jars(environment: Environment, settings: Settings, folder: Path) -> tuple[str, ...]:
    """Those of the coordinates that Spark does not bring itself."""
    present = {jars.artifact_of(jar) for jar in folder.glob("lib/*/site-packages/pyspark/jars/*.jar")}
    try:
        folders = [jars.fetch(settings, environment.name, coordinates) for coordinates in environment.jars]
    except LocalError as error:
        raise NotToBeHad(str(error)) from error
    found = {jar.name: str(jar) for one in folders for jar in sorted(one.glob("*.jar"))}
    return tuple(path for path in found.values() if jars.artifact_of(Path(path)) not in present)


def _dlt_init(environment: Environment, folder: Path, sources: str | None) -> None:
    project = folder / "project"
    project.mkdir()
    where = ("--location", sources) if sources else ()
    command = (folder / "bin" / "dlt", "--non-interactive", "init", str(environment.dlt_source), "filesystem", *where)
    _command(environment, *command, inside=project)


def _command(environment: Environment, *command: object, inside: Path = PROJECT) -> None:
    around = {**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"}
    done = subprocess.run([*map(str, command)], check=False, capture_output=True, text=True, cwd=inside, env=around)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotToBeHad(f"`{' '.join(map(str, command[:6]))} …` failed: {lines[-1] if lines else 'it says nothing'}")
