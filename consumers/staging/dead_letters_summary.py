"""What a dead-letter table holds, in numbers that fit a page: by reason, by window, and a sample for each of the top reasons.

Reads narrow columns, a piece at a time; a record's value only for the samples, and only where the definition allows to show them.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from consumers.config import Consumer
from consumers.staging.local import local_dataset
from consumers.staging.schema import DEAD_LETTERS, WINDOW, filled

MOST_WINDOWS = 50
MOST_REASONS = 50
MOST_SAMPLES = 5
SAMPLE_BYTES = 200
OTHER = "(further reasons)"
_KEPT_REASONS = 1000
_NARROW = ["_topic", "_topic_id", "_partition", "_offset", "_reason", WINDOW, "_rejected_at", "_commit_id", "_resolved_at"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Dead letters with one reason that are not resolved: how many, since when and until when rejected, and one of them."""

    reason: str
    count: int
    oldest: datetime | None
    newest: datetime | None
    example: str
    """As `partition:offset`, the form of the ids that a replay takes."""

    def plus(self, other: "Reason") -> "Reason":
        """Both together; the example is of the newest."""
        oldest = min((at for at in (self.oldest, other.oldest) if at is not None), default=None)
        newest = max((at for at in (self.newest, other.newest) if at is not None), default=None)
        example = other.example if other.newest == newest else self.example
        return replace(self, count=self.count + other.count, oldest=oldest, newest=newest, example=example)


@dataclass(frozen=True, slots=True)
class Sample:
    """A dead letter to look at. `value` is the start of its bytes as text; None where the definition does not show values."""

    example: str
    reason: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Summary:
    """`unresolved` dead letters, the most frequent reasons and the newest windows of those; and how many became rows.

    Those of a rewrite that is not committed do not count. Those that wait for ingestion's next commit do.
    """

    unresolved: int = 0
    resolved: int = 0
    reasons: tuple[Reason, ...] = ()
    windows: tuple[tuple[str, int], ...] = ()
    samples: tuple[Sample, ...] = ()


def dead_letter_summary(consumer: Consumer) -> Summary:
    """Summarize the newest version of a consumer's dead letters; a table that does not exist yet is empty."""
    if not DeltaTable.is_deltatable(str(consumer.dead_letters)):
        return Summary()
    dataset = local_dataset(DeltaTable(consumer.dead_letters))
    unresolved = resolved = 0
    reasons: dict[str, Reason] = {}
    windows: Counter[str] = Counter()
    for letters in _final(dataset):
        open_ = letters.filter(letters["_resolved_at"].is_null())
        unresolved, resolved = unresolved + open_.num_rows, resolved + letters.num_rows - open_.num_rows
        windows.update({str(each["values"] or "none"): each["counts"] for each in open_[WINDOW].value_counts().to_pylist()})
        for found in _reasons(open_):
            name = found.reason if found.reason in reasons or len(reasons) < _KEPT_REASONS else OTHER
            reasons[name] = reasons[name].plus(found) if name in reasons else replace(found, reason=name)
    top = sorted(reasons.values(), key=lambda reason: (-reason.count, reason.reason))[:MOST_REASONS]
    return Summary(
        unresolved=unresolved,
        resolved=resolved,
        reasons=tuple(top),
        windows=tuple(sorted(windows.most_common(MOST_WINDOWS), reverse=True)),
        samples=tuple(_sample(dataset, reason, consumer.config.show_values) for reason in top[:MOST_SAMPLES]),
    )


def _final(dataset: ds.Dataset) -> Iterator[pa.Table]:
    schema = pa.schema([DEAD_LETTERS.field(name) for name in _NARROW])
    for batch in dataset.to_batches(columns=[name for name in _NARROW if name in dataset.schema.names]):
        letters = filled(pa.Table.from_batches([batch]), schema)
        yield letters.filter(letters["_commit_id"].is_null())


def _reasons(letters: pa.Table) -> Iterator[Reason]:
    grouped = letters.sort_by([("_rejected_at", "ascending")]).group_by("_reason", use_threads=False)
    found = grouped.aggregate(
        [("_offset", "count"), ("_rejected_at", "min"), ("_rejected_at", "max"), ("_partition", "last"), ("_offset", "last")]
    )
    for row in found.to_pylist():
        example = f"{row['_partition_last']}:{row['_offset_last']}"
        yield Reason(str(row["_reason"]), row["_offset_count"], row["_rejected_at_min"], row["_rejected_at_max"], example)


def _sample(dataset: ds.Dataset, reason: Reason, show_value: bool) -> Sample:
    if not show_value:
        return Sample(reason.example, reason.reason, None)
    partition, _, offset = reason.example.partition(":")
    wanted = (pc.field("_partition") == int(partition)) & (pc.field("_offset") == int(offset))
    values = dataset.to_table(columns=["_value"], filter=wanted)["_value"].to_pylist()
    return Sample(reason.example, reason.reason, _text(next((value for value in values if value is not None), b"")))


def _text(value: bytes) -> str:
    shown = value[:SAMPLE_BYTES].decode(errors="backslashreplace")
    return f"{shown}… ({len(value):,} bytes)" if len(value) > SAMPLE_BYTES else shown
