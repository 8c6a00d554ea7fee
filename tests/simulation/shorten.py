"""Drops actions of a failing schedule while it still fails in the same way: fewer to read."""

from collections.abc import Sequence

from tests.simulation.schedule import Action
from tests.simulation.simulation import Outcome, run


def shortened(outcome: Outcome, tries: int = 600) -> Sequence[Action]:
    """Fewer actions that lead to a finding of the same kind (its first word)."""
    kind = outcome.findings[0].partition(":")[0]
    actions, size = list(outcome.actions), max(1, len(outcome.actions) // 2)
    while size and tries:
        start = 0
        while start < len(actions) and tries:
            tries -= 1
            fewer = actions[:start] + actions[start + size :]
            found = run(outcome.setup, fewer).findings
            if any(finding.partition(":")[0] == kind for finding in found):
                actions = fewer
            else:
                start += size
        size //= 2
    return actions
