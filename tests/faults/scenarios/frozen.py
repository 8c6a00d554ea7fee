"""Of two members one stands still past its session, the other takes over, and the first comes back to life."""

import signal
from dataclasses import replace

from consumers.staging.log import commits
from tests.faults.lab import SHORT_SESSION, Lab
from tests.faults.process import Child
from tests.faults.scenario import Outcome, scenario

_BATCHES = 6


@scenario("frozen past the session timeout", times=20)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """SIGSTOP while records come, until the other member has staged them all; then SIGCONT, and more records."""
    part = max(1, records // times // 3)
    batch = max(1, part // _BATCHES)
    lab.set_up(batch)
    order = lab.order(batch, options=SHORT_SESSION, until_caught_up=False, max_seconds=3600)
    with lab.faults(), lab.child(replace(order, member="m0")) as one, lab.child(replace(order, member="m1")) as two:
        for number in range(times):
            freeze(lab, (one, two)[number % 2], f"m{1 - number % 2}", part)
        for member in (one, two):
            member.signal(signal.SIGTERM)
        assert (one.end(), two.end()) == (0, 0), (one.said[-1], two.said[-1])
    lab.catch_up(batch)
    return lab.outcome(times)


def freeze(lab: Lab, member: Child, heir: str, part: int) -> None:
    """One round. It counts only when the heir has taken partitions over meanwhile."""
    lab.produce(part)
    lab.clock.sleep(lab.chance.uniform(0, 0.5))
    seen, began = len(commits(lab.consumer.staged)), lab.clock.monotonic()
    member.signal(signal.SIGSTOP)
    lab.produce(part)
    lab.until(lab.staged_to_the_end)
    took = lab.clock.monotonic() - began
    taken = [commit for commit in commits(lab.consumer.staged)[seen:] if commit.kind == "acquire" and commit.member == heir]
    member.signal(signal.SIGCONT)
    if taken:
        lab.struck(took)
    lab.produce(part)
    lab.until(lab.staged_to_the_end)
    lab.watch.look()
