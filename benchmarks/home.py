"""A home of its own for a benchmark: tables, Dagster's storage and settings, thrown away unless a folder is named."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestration.settings import PROJECT


@contextmanager
def home_in(folder: Path | None) -> Iterator[Path]:
    """The environment's variables point to it."""
    with tempfile.TemporaryDirectory() as scratch:
        home = (folder or Path(scratch)).resolve()
        os.environ |= {"WEIR_HOME": str(home), "WEIR_TABLES": str(home / "tables"), "DAGSTER_HOME": str(home / "dagster")}
        (home / "dagster").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECT / "dagster.yaml", home / "dagster" / "dagster.yaml")
        yield home
