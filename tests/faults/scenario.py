"""What a fault scenario is, how it registers, and what comes of one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.faults.kinds import Kinds

if TYPE_CHECKING:
    from tests.faults.lab import Lab

LEAST_RECORDS = 1_000
MOST_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """What came of a scenario: how often the fault was asked for and fired, the records staged while faults came, the longest
    time (seconds) from a fault to the next commit, and what the oracle found. `note` says why a scenario ended early.
    """

    asked: int
    fired: int
    records: int
    recovery_seconds: float
    kinds: Kinds = field(default_factory=Kinds)
    note: str = ""

    @property
    def valid(self) -> bool:
        """Whether the oracle's answer means something: the fault fired as often as asked, and enough records moved under it."""
        return not self.note and self.asked > 0 and self.fired >= self.asked and self.records >= LEAST_RECORDS

    @property
    def verdict(self) -> str:
        """`passed`, or why not."""
        if self.kinds != Kinds():
            return "FOUND"
        if not self.valid:
            return "INVALID"
        return "passed" if self.recovery_seconds <= MOST_SECONDS else "SLOW"


Run = Callable[["Lab", int, int, int], Outcome]


@dataclass(frozen=True)
class Scenario:
    """A scenario: how it runs (lab, times, records, seed), and how often its fault comes, in how many records, by default."""

    name: str
    fault: str
    run: Run
    times: int
    records: int
    brokers: int


SCENARIOS: dict[str, Scenario] = {}
"""By name, in the order of the matrix."""


def scenario(fault: str, times: int, records: int = 100_000, brokers: int = 1) -> Callable[[Run], Run]:
    """Register a function under its module's name. `fault` is how the matrix calls it."""

    def register(run: Run) -> Run:
        name = run.__module__.rpartition(".")[2]
        SCENARIOS[name] = Scenario(name, fault, run, times, records, brokers)
        return run

    return register
