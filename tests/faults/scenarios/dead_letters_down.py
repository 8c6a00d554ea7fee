"""Nothing can be written into the dead-letter table, and a part of the records belongs there."""

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario
from tests.faults.scenarios._storage import misbehaving


@scenario("dead-letter store down", times=10)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """One record in ten is malformed; the staged table can be written."""
    return misbehaving(lab, times, records, "fails", puts=1, where="/dead_letters/", malformed=0.1)
