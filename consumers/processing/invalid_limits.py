"""When invalid records stop a consumer: their share, their run in a partition, their bytes. Knows nothing of who asks."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from consumers.config import InvalidLimits
from consumers.errors import InvalidLimit
from consumers.types import OffsetRange, TopicPartition

FEWEST_FOR_RATIO = 100
"""A share of fewer records says nothing."""

_SAFE = "Nothing of this batch was committed. Mend the producer or the schema, or raise `invalid_records`, and start again."


@dataclass(frozen=True, slots=True)
class _Run:
    """Invalid records in a row that nothing valid has followed yet, up to `end` (the next offset)."""

    end: int
    offsets: np.ndarray


class InvalidGuard:
    """Judges what was found invalid, in the order of the offsets.

    Every `check_*` raises `InvalidLimit`. The guard may be asked about the same offsets again, after they were discarded and
    read again: a run is kept as its offsets, so it is known how long it was at any of them. A partition that comes back later
    than where it was left, because others had it in between, begins a new run.
    """

    def __init__(self, limits: InvalidLimits) -> None:
        self._limits = limits
        self._runs: dict[TopicPartition, _Run] = {}

    def check_share(self, where: str, records: int, invalid: int, reasons: Iterable[str] = ()) -> None:
        """`invalid` of `records` of `where`, judged from 100 records on."""
        if records >= FEWEST_FOR_RATIO and invalid > self._limits.max_ratio * records:
            raise InvalidLimit(
                f"{where}: {invalid} of {records} records are invalid, more than the definition's max_ratio of "
                f"{self._limits.max_ratio:g}. {_most_common(reasons)}{_SAFE}"
            )

    def check_run(
        self, tp: TopicPartition, step: OffsetRange, good: np.ndarray, bad: np.ndarray, reasons: Iterable[str] = ()
    ) -> None:
        """`good` and `bad` are the offsets in `step` that hold a valid or an invalid record, ascending."""
        most = self._limits.max_consecutive
        if most is None:
            return
        before = self._before(tp, step.start)
        longest = longest_run(good, bad, len(before))
        if longest > most:
            raise InvalidLimit(
                f"{tp}: {longest} invalid records in a row up to offset {step.end}, more than the definition's max_consecutive "
                f"of {most}. {_most_common(reasons)}{_SAFE}"
            )
        tail = bad[bad > good[-1]] if len(good) else np.concatenate([before, bad])
        self._runs[tp] = _Run(step.end, tail)

    def check_bytes(self, where: str, waiting: int) -> None:
        """Bytes of the invalid records that wait to be made durable."""
        if self._limits.max_bytes is not None and waiting > self._limits.max_bytes:
            raise InvalidLimit(
                f"{where}: {waiting} bytes of invalid records wait to be written, more than the definition's max_bytes of "
                f"{self._limits.max_bytes}. {_SAFE}"
            )

    def _before(self, tp: TopicPartition, start: int) -> np.ndarray:
        """The offsets of the run that leads up to `start`."""
        known = self._runs.get(tp)
        if known is None or known.end < start:
            return np.empty(0, np.int64)
        return known.offsets[known.offsets < start]


def longest_run(good: np.ndarray, bad: np.ndarray, before: int) -> int:
    """The longest run of bad offsets between good ones, counting `before` that led up to them.

    Offsets that hold no record do not end a run.
    """
    runs = np.bincount(np.searchsorted(good, bad), minlength=len(good) + 1)
    runs[0] += before
    return int(runs.max())


def _most_common(reasons: Iterable[str]) -> str:
    """A sentence on the three most frequent reasons, or nothing."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    if not counts:
        return ""
    top = sorted(counts.items(), key=lambda entry: -entry[1])[:3]
    return f"Most common: {'; '.join(f'{reason} ({count})' for reason, count in top)}. "
