"""The rows of a table at or past some offsets: counted by window, and named for a reader or a deletion."""

from collections import Counter
from collections.abc import Mapping

import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from consumers.staging.local import local_dataset, text
from consumers.staging.schema import WINDOW
from consumers.types import Positions, TopicPartition


def rows_past(table: DeltaTable, starts: Positions, labels: Mapping[TopicPartition, str]) -> Counter[str]:
    """How many rows of the loaded snapshot are at or past their partition's start, by window.

    `labels` name the incarnation of each partition's log (`_topic_id`); rows of any other are not counted. Reads four narrow
    columns of the files whose statistics allow such a row, a piece at a time.
    """
    found: Counter[str] = Counter()
    if not starts:
        return found
    for batch in local_dataset(table).to_batches(columns=[WINDOW], filter=past(starts, labels)):
        counts = pc.value_counts(batch[WINDOW])
        found.update({str(each["values"]): int(each["counts"]) for each in counts.to_pylist()})
    return found


def past(starts: Positions, labels: Mapping[TopicPartition, str]) -> ds.Expression:
    """The same rows as a filter."""
    wanted = ds.scalar(False)
    for tp, start in starts.items():
        wanted = wanted | (
            (text("_topic") == tp.topic)
            & (text("_topic_id") == labels[tp])
            & (pc.field("_partition") == tp.partition)
            & (pc.field("_offset") >= start)
        )
    return wanted


def condition(starts: Positions, labels: Mapping[TopicPartition, str]) -> str:
    """The same rows as a condition in SQL."""
    return " OR ".join(
        f"(_topic = '{tp.topic}' AND _topic_id = '{labels[tp]}' AND _partition = {tp.partition} AND _offset >= {start})"
        for tp, start in starts.items()
    )
