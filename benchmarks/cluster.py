"""Where a benchmark runs: the cluster that is named, or a fresh one that ends with it."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestration.local.cluster import running_cluster
from orchestration.settings import Settings


@contextmanager
def cluster(bootstrap_servers: str | None) -> Iterator[str]:
    """Its bootstrap servers."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends with it then, too
    if bootstrap_servers is not None:
        yield bootstrap_servers
        return
    with tempfile.TemporaryDirectory() as home:
        scratch = Settings(home=Path(home), tables=Path(home), cache=Settings.load().cache, bootstrap_servers=None)
        with running_cluster(scratch) as servers:
            yield servers
