"""When invalid records stop a consumer."""

import numpy as np
import pytest

from consumers.config import InvalidLimits
from consumers.errors import InvalidLimit
from consumers.processing.invalid_limits import InvalidGuard, longest_run
from consumers.types import OffsetRange, TopicPartition

TP = TopicPartition("t", 0)


def check(guard: InvalidGuard, start: int, kinds: str) -> None:
    """Offsets from `start` on: `g` holds a valid record, `b` an invalid one, anything else none."""
    good = np.array([start + i for i, kind in enumerate(kinds) if kind == "g"], np.int64)
    bad = np.array([start + i for i, kind in enumerate(kinds) if kind == "b"], np.int64)
    guard.check_run(TP, OffsetRange(start, start + len(kinds)), good, bad, ["no number"] * len(bad))


@pytest.mark.parametrize(
    ("good", "bad", "before", "longest"),
    [
        ([], [], 4, 4),
        ([1, 2], [], 4, 4),
        ([], [5, 900], 4, 6),
        ([3], [1, 2, 5], 4, 6),
        ([3, 9], [4, 6, 8, 10], 0, 3),
    ],
)
def test_invalid_records_in_a_row_are_counted_across_gaps(good: list[int], bad: list[int], before: int, longest: int) -> None:
    assert longest_run(np.array(good, np.int64), np.array(bad, np.int64), before) == longest


def test_a_run_goes_on_from_one_batch_to_the_next() -> None:
    guard = InvalidGuard(InvalidLimits(max_consecutive=3))
    check(guard, 0, "gbb")
    check(guard, 3, ".b")
    with pytest.raises(InvalidLimit, match=r"t/0: 4 invalid records in a row up to offset 6.*no number \(1\)"):
        check(guard, 5, "b")


def test_a_batch_that_is_read_again_does_not_count_twice() -> None:
    guard = InvalidGuard(InvalidLimits(max_consecutive=3))
    check(guard, 0, "gbb")
    check(guard, 3, "b")
    for start, kinds in ((0, "gbb"), (3, "b"), (2, "bb"), (4, "g")):
        check(guard, start, kinds)
    with pytest.raises(InvalidLimit):
        check(guard, 2, "bbbb")


def test_a_partition_that_others_had_in_between_begins_a_new_run() -> None:
    guard = InvalidGuard(InvalidLimits(max_consecutive=3))
    check(guard, 0, "bbb")
    check(guard, 10, "bbb")


def test_a_valid_record_ends_a_run() -> None:
    guard = InvalidGuard(InvalidLimits(max_consecutive=2))
    check(guard, 0, "bbgbb")
    check(guard, 5, "gbb")
    with pytest.raises(InvalidLimit):
        check(guard, 8, "b")


@pytest.mark.parametrize(("records", "invalid", "stops"), [(99, 99, False), (100, 50, False), (100, 51, True)])
def test_the_share_is_judged_from_100_records_on(records: int, invalid: int, stops: bool) -> None:
    guard = InvalidGuard(InvalidLimits(max_ratio=0.5))
    if not stops:
        guard.check_share("t/0", records, invalid)
        return
    with pytest.raises(InvalidLimit, match="51 of 100 records are invalid"):
        guard.check_share("t/0", records, invalid)


def test_bytes_that_wait_are_limited_only_where_the_definition_says_so() -> None:
    InvalidGuard(InvalidLimits()).check_bytes("t/0", 10**12)
    guard = InvalidGuard(InvalidLimits(max_bytes=10))
    guard.check_bytes("t/0", 10)
    with pytest.raises(InvalidLimit, match="11 bytes"):
        guard.check_bytes("t/0", 11)
