"""Five processes that each were given the same partition stand before their commit, and are let go at once."""

import signal
from contextlib import ExitStack

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario

WRITERS = 5
_BATCHES = 4
_ENDS = (0, 3)  # caught up, or left the partition to the others


@scenario("five writers on one partition", times=20)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Each has a group of its own, so that Kafka gives all of them everything."""
    part = records // times
    batch = max(1, part // _BATCHES)
    lab.set_up(batch, partitions=1)
    with lab.faults():
        for _ in range(times):
            lab.produce(part)
            race(lab, batch)
            lab.watch.look()
    lab.catch_up(batch)
    return lab.outcome(times, each=WRITERS)


def race(lab: Lab, batch: int) -> None:
    """Stop five writers at the same place, and let them go."""
    with ExitStack() as stack:
        writers = []
        for number in range(WRITERS):
            group = f"{lab.consumer.group}-{number}"
            at_commit = {"point": "before the staged commit", "fault": signal.SIGSTOP}
            order = lab.order(batch, member=f"w{number}", group=group, options={}, **at_commit)
            writers.append(stack.enter_context(lab.child(order)))
            writers[-1].wait_until_stopped()
        for writer in writers:
            writer.signal(signal.SIGCONT)
        for writer in writers:
            assert writer.end() in _ENDS, writer.said[-3:]
