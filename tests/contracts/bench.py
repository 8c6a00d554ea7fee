"""A strategy on the bench: guarded, with the test's own next step or commit, and a driver."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from consumers.processing.strategies.guard import guard, guard_last
from consumers.processing.strategies.protocol import Commit, Strategy
from consumers.types import Ranges
from tests.contracts.driver import Driver, Next, joined
from tests.contracts.oracle import expect_ended, expect_passed
from tests.contracts.strategies import Ended, Last, Middle, Room, room


@dataclass
class Bench:
    """A strategy with a next step, guarded, and what drives it."""

    case: Middle
    room: Room
    after: Next
    driver: Driver

    def settle(self) -> None:
        """Finish, and compare everything that came out with what went in."""
        self.driver.finish()
        expect_passed(self.case, self.driver, self.after)


@dataclass
class EndBench:
    """A last strategy, guarded, and what it told."""

    case: Last
    room: Room
    ended: Ended
    driver: Driver
    commits: list[Ranges]

    def settle(self) -> None:
        """Finish, and compare everything that is durable with what went in."""
        self.driver.finish()
        expect_ended(self.ended, self.driver, self.commits)


@contextmanager
def bench_of(case: Middle, path: Path) -> Iterator[Bench]:
    """Open a strategy with a next step; it is closed afterwards."""
    here, after = room(path, case.real_time), Next()
    with ExitStack() as stack:

        def build(guarded: Strategy[object]) -> Strategy[pa.RecordBatch]:
            return stack.enter_context(case.open(here, guarded))

        strategy = guard(build, after, settles_rejected=case.settles_rejected)
        stack.callback(strategy.close)
        yield Bench(case, here, after, Driver(strategy, lambda: after.committed))


@contextmanager
def end_bench_of(case: Last, path: Path) -> Iterator[EndBench]:
    """Open a last strategy; it is closed afterwards."""
    here, commits, opened = room(path, case.real_time), list[Ranges](), list[Ended]()
    with ExitStack() as stack:

        def build(commit: Commit) -> Strategy[pa.RecordBatch]:
            opened.append(stack.enter_context(case.open(here, commit)))
            return opened[0].strategy

        strategy = guard_last(build, commits.append)
        stack.callback(strategy.close)
        yield EndBench(case, here, opened[0], Driver(strategy, lambda: joined(commits), opened[0].reclaim), commits)
