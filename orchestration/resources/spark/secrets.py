"""Secret settings on their way to Spark: in a file that only this user can read, since anybody can read a process's arguments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

_SECRET = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""What Spark itself takes for secret, in its pages and event logs (`spark.redaction.regex`)."""


def plain(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings that may be seen."""
    return {name: value for name, value in conf.items() if not _SECRET.search(name)}


@contextmanager
def secret_arguments(conf: Mapping[str, str], folder: Path) -> Iterator[Sequence[str]]:
    """Arguments of spark-submit that name a file with the other settings, gone at the end; none where all may be seen."""
    hidden = conf.items() - plain(conf).items()
    if not hidden:
        yield ()
        return
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=folder, prefix=".settings-", suffix=".conf", encoding="utf-8") as file:
        file.writelines(f"{name}={_escaped(value)}\n" for name, value in sorted(hidden))
        file.flush()
        yield ("--properties-file", file.name, "--load-spark-defaults")


def _escaped(value: str) -> str:
    """As a Java properties file has it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
