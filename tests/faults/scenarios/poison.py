"""Records that cannot become rows: one in a hundred, and all of them."""

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario


@scenario("poison 1% and 100%", times=10)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Each member finds a backlog of the one kind or the other."""
    part = records // times
    batch = max(1, part // 4)
    lab.set_up(batch)
    with lab.faults():
        for number in range(times):
            before = poisoned(lab)
            lab.produce(part, malformed=1.0 if number % 2 else 0.01)
            if poisoned(lab) > before:
                lab.struck()
            lab.catch_up(batch)
            lab.watch.look()
    return lab.outcome(times)


def poisoned(lab: Lab) -> int:
    """How many such records were sent until now."""
    return sum(record.malformed for record in lab.ledger.acked)
