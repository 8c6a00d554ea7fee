"""The commit landed, and the answer did not: the client reports a conflict with its own commit, or gives up."""

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario
from tests.faults.scenarios._storage import misbehaving


@scenario("commit landed, acknowledgement lost", times=50)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Puts of the staged table and of the dead letters alike."""
    return misbehaving(lab, times, records, "unacknowledged", puts=2)
