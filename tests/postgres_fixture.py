"""A real PostgreSQL for tests: from the wheel `pgserver`, else the system's. It listens on a Unix socket of its own only."""

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import OperationalError

from consumers.clock import SystemClock

_NOBODY = "nobody"  # PostgreSQL refuses to run as root
# The server ends, together with its connections, when its standard input does: also when whoever started it is killed.
_SERVE = '"$@" & read -r _; kill -INT $!; wait $!'
_START_SECONDS = 60.0
_NUMBERS = itertools.count()
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=50", "shared_buffers=32MB")


@contextmanager
def postgres() -> Iterator[URL]:
    """The address of a server of our own, stopped at the end. Skips, or fails in CI, where there are no binaries."""
    # Not below pytest's folder, which another user than its own cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="weir-pg-"))
    try:
        with _running(_binaries(folder), folder) as url:
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(server: URL) -> Iterator[URL]:
    """A fresh database on a running server, dropped at the end with whoever is still connected to it."""
    name = f"weir_{next(_NUMBERS)}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with admin.connect() as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
        yield server.set(database=name)
        with admin.connect() as connection:
            connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        admin.dispose()


def _binaries(folder: Path) -> Path:
    found = util.find_spec("pgserver")
    wheel = Path(found.submodule_search_locations[0]) / "pginstall" if found and found.submodule_search_locations else None
    if wheel and (wheel / "bin" / "postgres").exists():
        if os.geteuid() != 0 or _runs(wheel / "bin"):
            return wheel / "bin"
        # The other user cannot enter the environment's folder.
        return Path(shutil.copytree(wheel, folder / "pginstall")) / "bin"
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if system:
        return system[-1].parent
    if os.environ.get("CI"):
        pytest.fail("no PostgreSQL: neither the wheel pgserver nor /usr/lib/postgresql is there")
    pytest.skip("no PostgreSQL: neither the wheel pgserver nor /usr/lib/postgresql is there")


def _runs(binaries: Path) -> bool:
    try:
        return (
            subprocess.run([binaries / "postgres", "--version"], user=_NOBODY, capture_output=True, check=False).returncode == 0
        )
    except PermissionError:
        return False


@contextmanager
def _running(binaries: Path, folder: Path) -> Iterator[URL]:
    data, log = folder / "data", folder / "log"
    user = _NOBODY if os.geteuid() == 0 else None
    if user:
        folder.chmod(0o755)
        data.mkdir()
        shutil.chown(data, user)
    make = [binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-locale"]
    subprocess.run(make, user=user, cwd="/", capture_output=True, check=True)
    options = [part for setting in _FAST for part in ("-c", setting)]
    with log.open("wb") as out:
        serve = ["sh", "-c", _SERVE, "sh", binaries / "postgres", "-D", data, "-k", data, "-h", "", *options]
        server = subprocess.Popen(serve, user=user, cwd="/", stdin=subprocess.PIPE, stdout=out, stderr=out)
    try:
        url = URL.create("postgresql+psycopg", username="postgres", database="postgres", query={"host": str(data)})
        _wait(url, server, log)
        yield url
    finally:
        server.communicate(timeout=30)


def _wait(url: URL, server: "subprocess.Popen[bytes]", log: Path) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _START_SECONDS
    engine = create_engine(url)
    try:
        while True:
            try:
                engine.connect().close()
                return
            except OperationalError:
                if server.poll() is not None or clock.monotonic() > deadline:
                    raise AssertionError(f"PostgreSQL did not start: {log.read_text()}") from None
                clock.sleep(0.05)
    finally:
        engine.dispose()
