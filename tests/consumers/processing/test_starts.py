"""Where a partition starts, as a table."""

import pytest

from consumers.errors import DataLoss
from consumers.processing.starts import Start, start_of
from consumers.types import OffsetRange, Watermarks
from tests.consumers.parts import TP

MARKS = Watermarks(10, 20)


@pytest.mark.parametrize(
    ("position", "first", "recreated", "start"),
    [
        (None, 15, False, Start(15)),
        (None, 5, False, Start(10)),
        (None, 25, False, Start(20)),
        (10, 0, False, Start(10)),
        (15, 0, False, Start(15)),
        (20, 0, False, Start(20)),
        (9, 0, False, Start(10, OffsetRange(9, 10))),
        (0, 0, False, Start(10, OffsetRange(0, 10))),
        (21, 0, False, Start(20, OffsetRange(20, 21), cut=True)),
        (15, 0, True, Start(10, OffsetRange(15, 15))),
        (None, 12, True, Start(12)),
    ],
)
def test_the_start_follows_from_position_and_watermarks(position: int | None, first: int, recreated: bool, start: Start) -> None:
    assert start_of(TP, position, first, MARKS, recreated, record_loss=True) == start
    if start.lost is None:
        assert start_of(TP, position, first, MARKS, recreated, record_loss=False) == start


@pytest.mark.parametrize(
    ("position", "recreated", "words"),
    [
        (3, False, "offsets 3 to 9 (7 records at most)"),
        (25, False, "the log ends at 20, before the committed position 25"),
        (15, True, "the topic was deleted and created again"),
    ],
)
def test_a_loss_that_may_not_be_recorded_stops_with_the_offsets(position: int, recreated: bool, words: str) -> None:
    with pytest.raises(DataLoss) as stopped:
        start_of(TP, position, 0, MARKS, recreated, record_loss=False)
    for part in (words, "t/0", "on_data_loss: record", f"up to offset {position} is safe"):
        assert part in str(stopped.value)
