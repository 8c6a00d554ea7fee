"""What a contestant is asked and what it answers: the only part of the benchmarks that all environments load.

It may import the standard library and what itself needs no more than that.
"""

import json
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from consumers.clock import SystemClock

_CLOCK = SystemClock()

READY = "ready"

BATCH_RECORDS = 200_000
"""How many records go into a commit of whoever can be told; a topic that has more has a multiple of it."""

FIELDS = ("id", "account", "amount_cents", "price", "approved", "booked_at", "note", "city", "currency")
REQUIRED = ("id", "account", "amount_cents", "approved", "booked_at", "currency")


@dataclass(frozen=True)
class Task:
    """Read `records` records of `topic` from its beginning and commit them to a Delta table in `folder`.

    `group` is the consumer group, `client` the librdkafka settings that all have in common, `jars` what a JVM is given, `cores`
    how many there are, `variant` which kind of topic it is.
    """

    bootstrap_servers: str
    topic: str
    records: int
    folder: Path
    group: str
    client: Mapping[str, Any]
    jars: tuple[str, ...] = ()
    cores: int = 1
    variant: str = "plain"

    @property
    def table(self) -> Path:
        """Where the Delta table goes, unless the contestant has to choose the place itself."""
        return self.folder / "table"

    @property
    def batch_records(self) -> int:
        """How many records to gather for a commit."""
        return min(BATCH_RECORDS, self.records)

    def line(self) -> str:
        """The task as the argument of a command."""
        return json.dumps({**asdict(self), "folder": str(self.folder)})

    @staticmethod
    def given() -> "Task":
        """The task in this process's last argument, once it may begin: others get ready meanwhile."""
        found = json.loads(sys.argv[-1])
        print(READY, flush=True)
        sys.stdin.readline()
        return Task(**{**found, "folder": Path(found["folder"]), "jars": tuple(found["jars"])})


@dataclass
class Answer:
    """When the first record was in hand and when the last commit was done (monotonic seconds), and what that took.

    `table` is None where nothing is stored. `note` says what else is worth knowing.
    """

    records: int = 0
    began: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0
    table: str | None = None
    note: str = ""
    _cpu: float = field(default=0.0, repr=False)

    def begin(self) -> None:
        """The first record is in hand."""
        if not self.began:
            self.began, self._cpu = _CLOCK.monotonic(), cpu_seconds()

    def end(self) -> None:
        """A commit is done; a later one counts instead."""
        self.ended, self.cpu_seconds = _CLOCK.monotonic(), cpu_seconds() - self._cpu

    def print(self) -> None:
        """As a line of JSON, with the most memory that this process or a child of it had."""
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        self.peak_mb = max(self.peak_mb, peak / 1024)
        print(json.dumps({key: value for key, value in asdict(self).items() if key != "_cpu"}), flush=True)


def cpu_seconds() -> float:
    """CPU time of this process, all its threads included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
