"""Where a member starts to read a partition, and what is gone. Pure: every fact is handed in."""

from dataclasses import dataclass

from consumers.errors import DataLoss
from consumers.types import OffsetRange, TopicPartition, Watermarks


@dataclass(frozen=True, slots=True)
class Start:
    """The offset to read first; what was lost before it; and whether offsets are being used again from here on."""

    offset: int
    lost: OffsetRange | None = None
    cut: bool = False


def start_of(
    tp: TopicPartition, position: int | None, first: int, marks: Watermarks, recreated: bool, record_loss: bool
) -> Start:
    """Decide the start of a partition.

    `position` is the table's next offset; without one `first` is used, which the caller took from the group's offsets or the
    definition. `recreated` says that the position belongs to an earlier incarnation of the topic. Raises `DataLoss` where
    offsets are gone and `record_loss` does not allow to go on.
    """
    if position is None:
        return Start(min(max(first, marks.low), marks.high))
    if recreated:
        start, what = Start(marks.low, OffsetRange(position, position)), "the topic was deleted and created again"
        gone = f"what followed offset {position} in the old topic"
    elif position < marks.low:
        start, what = Start(marks.low, OffsetRange(position, marks.low)), "the topic's retention has taken records"
        gone = f"offsets {position} to {marks.low - 1} ({marks.low - position} records at most)"
    elif position > marks.high:
        start, what = Start(marks.high, OffsetRange(marks.high, position), cut=True), "the topic's log was cut short"
        gone = f"the log ends at {marks.high}, before the committed position {position}"
    else:
        return Start(position)
    if record_loss:
        return start
    raise DataLoss(
        f"{tp}: {what}: {gone}. Everything staged up to offset {position} is safe, and nothing was read past it. To go on from "
        f"offset {start.offset} and record the loss, set `on_data_loss: record` in the consumer's definition."
    )
