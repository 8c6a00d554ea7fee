"""Chains of strategies as users write them. Only type-checked: `test_compositions.py` says how."""

import pyarrow as pa

from consumers.processing.strategies.batch import Batch
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.commit_positions import CommitPositions
from consumers.processing.strategies.each import Record, each, each_kept, each_mapped
from consumers.processing.strategies.filter import Filter
from consumers.processing.strategies.map import Map
from consumers.processing.strategies.protocol import Commit, Strategy
from consumers.processing.strategies.reduce import Reduce
from consumers.processing.strategies.run_task import RunTask
from consumers.processing.strategies.unfold import Unfold


def amount(record: Record) -> int:
    return record.offset


def add(total: int, amounts: list[int]) -> int:
    return total + sum(amounts)


def digits(total: int) -> list[str]:
    return list(str(total))


def shown(digit: str) -> None:
    digit.upper()


def right(commit: Commit) -> Strategy[pa.RecordBatch]:
    """Every step takes what the one before it makes."""
    end: Strategy[str] = RunTask(shown, CommitPositions(commit))
    total: Strategy[list[int]] = Reduce(add, int, UpTo(records=100), Unfold(digits, "", end))
    summed = RunTask(each(amount), total)
    return Filter(each_kept(lambda record: record.key is not None), Batch(UpTo(), Map(each_mapped(lambda r: r.value), summed)))


def wrong(commit: Commit) -> None:
    """Every line has a step that makes something else than the next one takes; the checker has to say so."""
    strings: Strategy[str] = RunTask(shown, CommitPositions(commit))
    RunTask(each(amount), strings)  # type: ignore[arg-type]
    Unfold(digits, 0, strings)  # type: ignore[misc]
    Reduce(add, int, UpTo(), strings)  # type: ignore[arg-type]
    Map(digits, strings)  # type: ignore[arg-type]
