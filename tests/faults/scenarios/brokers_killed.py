"""All brokers are killed at once while a member stages, and started again."""

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario
from tests.faults.scenarios._brokers import bring_back, kill, running

_ENDS = (0, 3)  # a member that waits too long for Kafka ends, and the next one goes on


@scenario("all brokers killed", times=5, brokers=3)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """The backlog is long enough that the member is in the middle of it."""
    part = records // times
    batch = max(1, part // 20)
    lab.set_up(batch, replicas=3)
    with lab.faults():
        for _ in range(times):
            lab.produce(part)
            with lab.child(lab.order(batch, max_seconds=300)) as member:
                member.wait_for("committed")
                for one in running(lab).values():
                    kill(one, lab)
                lab.struck()
                bring_back(lab)
                assert member.end() in _ENDS, member.said[-3:]
            lab.catch_up(batch)
            lab.produce(1)
            lab.catch_up(batch)
            lab.watch.look()
    return lab.outcome(times)
