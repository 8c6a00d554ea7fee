"""A file of rows or a version of the log cannot be written."""

from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, scenario
from tests.faults.scenarios._storage import misbehaving


@scenario("put fails", times=50)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Puts of the staged table and of the dead letters alike."""
    return misbehaving(lab, times, records, "fails", puts=4)
