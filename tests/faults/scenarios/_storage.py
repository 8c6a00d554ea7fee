"""What scenarios of storage share: members that meet a fault and end, or go on, until it has come often enough."""

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome
from tests.faults.storage import Kind, StorageFault

_COMMITS_EACH = 6  # there are for each fault; a member makes half of them before it meets it
_ENDS = (0, 3)  # by itself, or with an error of ours that says what failed


def misbehaving(lab: Lab, times: int, records: int, kind: Kind, puts: int, where: str = "", malformed: float = 0.05) -> Outcome:
    """Ingest under a storage fault; a commit has `puts` that it may hit. A member that ends with an error has a successor."""
    batch = max(1, records // (times * _COMMITS_EACH))
    lab.set_up(batch)
    lab.produce(records, malformed=malformed)
    with lab.faults():
        for _ in range(2 * times):
            if (left := times - lab.strikes) <= 0:
                break
            fault = StorageFault(kind, lab.chance.randint(3, max(5, puts * 5)), left, where, lab.pace)
            with lab.child(lab.order(batch, storage=fault, max_seconds=600)) as member:
                code = member.end(600)
                assert code in _ENDS, (code, member.said[-3:])
            lab.watch.look()
    lab.catch_up(batch)
    return lab.outcome(times)
