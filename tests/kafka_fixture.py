"""A real Kafka for tests, apart from the developer's own: its state is in a folder of the test, its jars in
the usual cache.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from orchestration.local.cluster import running_cluster
from orchestration.settings import Settings


def settings_in(folder: Path) -> Settings:
    """Settings whose state and tables are in `folder` and which know no other Kafka; the cache is the
    machine's.
    """
    return replace(Settings.load(), home=folder, tables=folder / "tables", bootstrap_servers=None)


@contextmanager
def kafka(folder: Path, brokers: int = 1) -> Iterator[str]:
    """The bootstrap address of a cluster on free ports, killed at the end."""
    # Nobody reads its data again, so that a broker need not write it all down before it ends.
    with running_cluster(settings_in(folder), brokers, stop_seconds=1.0) as bootstrap_servers:
        yield bootstrap_servers
