"""SIGKILL at any instruction: a member that is never idle is killed every 5 to 15 seconds."""

import signal

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario

_SLICES = 10


@scenario("kill at random", times=30)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Records come while it lives, so that it is struck in the middle of whatever it does."""
    batch = max(1, records // (times * _SLICES * 2))
    lab.set_up(batch)
    with lab.faults():
        for _ in range(times):
            with lab.child(lab.order(batch, until_caught_up=False)) as victim:
                lab.produce(records // times // 2)
                victim.wait_for("committed")
                seconds = lab.chance.uniform(5, 15) * lab.pace
                for _ in range(_SLICES):
                    lab.produce(records // times // 2 // _SLICES)
                    lab.clock.sleep(seconds / _SLICES)
                lab.produce(1)
                lab.clock.sleep(lab.chance.uniform(0, 0.3))
                lab.struck()
                victim.signal(signal.SIGKILL)
                assert victim.end() == -signal.SIGKILL
            lab.watch.look()
        lab.produce(max(1, records - len(lab.ledger.acked)))
    lab.catch_up(batch)
    return lab.outcome(times)
