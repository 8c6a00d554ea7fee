"""A home of its own for a benchmark: tables, Dagster's storage and settings, thrown away unless a folder is named."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestration.event_log import BATCHES
from orchestration.local.stack import dagster_home
from orchestration.settings import Settings


@contextmanager
def home_in(folder: Path | None) -> Iterator[Path]:
    """The environment's variables point to it."""
    with tempfile.TemporaryDirectory() as scratch:
        home = (folder or Path(scratch)).resolve()
        os.environ |= {"WEIR_HOME": str(home), "WEIR_TABLES": str(home / "tables"), **BATCHES}
        os.environ["DAGSTER_HOME"] = str(dagster_home(Settings.load()))
        yield home
