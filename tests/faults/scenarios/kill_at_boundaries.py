"""SIGKILL at every point between a poll and the group commit, one after the other."""

import signal

from tests.faults.child import POINTS
from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario

# A takeover comes once in a process, first of all.
_ONCE = ("between the takeovers of the two tables", "after the takeover")
_CALLS = 3


@scenario("kill at every commit boundary", times=100)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Each process is killed at one call of one point; the next goes on."""
    batch = max(1, records // (times * _CALLS))
    lab.set_up(batch)
    lab.produce(records)
    points = list(POINTS)
    with lab.faults():
        for number in range(times):
            point = points[number % len(points)]
            call = 1 if point in _ONCE else lab.chance.randint(1, _CALLS)
            with lab.child(lab.order(batch, point=point, call=call, fault=signal.SIGKILL)) as victim:
                victim.end()
            lab.watch.look()
    lab.catch_up(batch)
    return lab.outcome(times)
