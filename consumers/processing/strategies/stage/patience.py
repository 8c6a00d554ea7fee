"""The file budget: where a window has more files than it should, batches wait longer, so that each file holds more."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from consumers.config import BatchLimits

_COUNT_EVERY = 50


def patience(files: int, budget: int, base: float, most: float | None) -> float:
    """Seconds that the oldest record of a batch may wait, for a window of so many files. Pure.

    `base` up to the budget; from there on twice as long for each budget more, up to `most`. None: `base`, whatever there is.
    """
    if most is None or files <= budget:
        return base
    return max(base, min(most, base * math.exp2(min(files / budget - 1, 64.0))))


class Patience:
    """How long batches wait now, `seconds`. Belongs to the thread that commits."""

    def __init__(self, limits: BatchLimits, budget: int) -> None:
        self.seconds = limits.max_latency_seconds
        self._limits = limits
        self._budget = budget
        self._files: Counter[str] = Counter()
        self._commits = 0

    def wrote(self, windows: Collection[str], count: Callable[[], Mapping[str, int]]) -> None:
        """A commit added a file to each of these windows. `count` counts those of the table, which is asked now and then."""
        if self._limits.full_window_latency_seconds is None or not windows:
            return
        if self._commits % _COUNT_EVERY:
            self._files.update(windows)
        else:
            self._files = Counter(count())
        self._commits += 1
        most = max(self._files[window] for window in windows)
        base = self._limits.max_latency_seconds
        self.seconds = patience(most, self._budget, base, self._limits.full_window_latency_seconds)
