"""The broker that leads a partition is killed while records come and go, and started again."""

import signal

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario
from tests.faults.scenarios._brokers import bring_back, kill, leader, running

_ENDS = (0, 3)  # a member that waits too long for Kafka ends, and the next one goes on


@scenario("leader bounced", times=5, brokers=3)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Of three brokers two must have a record before it is acknowledged, so none may be lost."""
    part = max(1, records // times // 2)
    batch = max(1, part // 4)
    lab.set_up(batch, replicas=3)
    with lab.faults():
        for number in range(times):
            bounce(lab, number % lab.partitions, part, batch)
            lab.watch.look()
    lab.catch_up(batch)
    return lab.outcome(times)


def bounce(lab: Lab, partition: int, part: int, batch: int) -> None:
    """Kill the partition's leader; it comes back once everything is staged without it."""
    with lab.child(lab.order(batch, until_caught_up=False, max_seconds=3600)) as member:
        lab.produce(part)
        began = lab.clock.monotonic()
        kill(running(lab)[leader(lab, partition)], lab)
        lab.produce(part)
        lab.until(lambda: lab.staged_to_the_end() or not member.alive, 150)
        if member.alive:
            member.signal(signal.SIGTERM)
        assert member.end() in _ENDS, member.said[-1]
    lab.catch_up(batch)
    lab.struck(lab.clock.monotonic() - began)
    bring_back(lab)
