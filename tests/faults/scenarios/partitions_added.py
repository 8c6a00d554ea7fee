"""The topic is given more partitions while a member reads it."""

import signal

from tests.faults.lab import Lab
from tests.faults.ledger import add_partitions
from tests.faults.scenario import Outcome, scenario

# A change of the topic is noticed within a second rather than five minutes.
_ALERT = {"topic.metadata.refresh.interval.ms": "500"}


@scenario("partitions added", times=10)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Records go to the new partition, too, from the moment that it is there."""
    part = records // times
    batch = max(1, part // 4)
    lab.set_up(batch)
    with lab.faults(), lab.child(lab.order(batch, options=_ALERT, until_caught_up=False, max_seconds=3600)) as member:
        for _ in range(times):
            lab.produce(part // 2)
            lab.partitions += 1
            add_partitions(lab.bootstrap, lab.consumer.config.topic, lab.partitions)
            lab.struck()
            lab.produce(part // 2)
            lab.until(lab.staged_to_the_end)
            lab.watch.look()
        member.signal(signal.SIGTERM)
        assert member.end() == 0, member.said[-1]
    lab.catch_up(batch)
    return lab.outcome(times)
