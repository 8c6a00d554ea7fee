"""Which offsets of a topic to read for a window beside those that the table knows: of before its first start, and named ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumers.processing.backfill.locate import Origin
from consumers.processing.backfill.source import Source
from consumers.staging.windows import LENGTHS, Every, start_of
from consumers.types import OffsetRange, Positions, TopicPartition


@dataclass(frozen=True)
class Extent:
    """`ranges` to read, one a partition; `gone` are offsets that may have held such records, and that retention took."""

    ranges: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)
    gone: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)


def older(window: str, every: Every, origin: Origin, positions: Positions, source: Source) -> Extent:
    """Where the topic may hold records of `window` that are older than the table's first start.

    From the first record at or after the window's start, before which there is none of it, to the first that is a window's length
    past its end: records may come that late. What comes later still must be named. Records have the topic's timestamps; where
    windows are cut by a field, these are a hint, and offsets are better named.
    """
    before = {tp: min(first, positions.get(tp, 0)) for tp, first in origin.first.items()}
    marks = source.watermarks() if any(before.values()) else {}
    open_ = {tp: end for tp, end in before.items() if tp in marks and marks[tp].low < end}
    if not open_:
        return Extent()
    ranges, gone = {}, {}
    for tp, span in source.span(*_bounds(window, every)).items():
        if tp not in open_:
            continue
        if 0 < marks[tp].low == span.start:
            gone[tp] = OffsetRange(0, span.start)
        if span.start < (end := min(span.end, open_[tp])):
            ranges[tp] = OffsetRange(span.start, end)
    return Extent(ranges, gone)


def with_named(extent: Extent, named: Mapping[TopicPartition, OffsetRange], positions: Positions) -> Extent:
    """The same and `named`, as far as those are below the positions."""
    ranges = dict(extent.ranges)
    for tp, asked in named.items():
        end = min(asked.end, positions.get(tp, 0))
        if asked.start < end:
            below = OffsetRange(asked.start, end)
            ranges[tp] = ranges.get(tp, below).hull(below)
    return Extent(ranges, extent.gone)


def _bounds(window: str, every: Every) -> tuple[int, int]:
    start = start_of(window, every)
    return int(start.timestamp() * 1000), int((start + 2 * LENGTHS[every]).timestamp() * 1000)
