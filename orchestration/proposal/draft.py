"""The proposal as a whole: what was seen, in sentences, and the definition that follows from it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import BatchLimits, Column, ConsumerConfig
from consumers.formats import JsonDecoder, RawDecoder
from orchestration.proposal.columns import Choice, Proposed, choose
from orchestration.proposal.fields import Seen, look, shortened
from orchestration.proposal.windows import WindowChoice, extent, propose

_SHOWN = 5
_MEMORY = 64 * 1024 * 1024
_LARGEST_IN_MEMORY = 16
_MAGIC = b"\x00"


@dataclass(frozen=True)
class Draft:
    """A definition, and what it rests on. `seen` are sentences; `notes` are by column."""

    topic: str
    config: ConsumerConfig
    columns: Mapping[str, Proposed]
    window_why: str
    batch_why: str
    seen: tuple[str, ...]


def draft(topic: str, records: pa.RecordBatch, total: int, partitions: int, now: datetime) -> Draft:
    """Propose from records (columns of `RECORD_COLUMNS`) of a topic that holds `total`. There must be one with a value."""
    values = records["value"].drop_null()
    seen = look(values.to_pylist())
    as_json = seen.objects * 2 > len(values)
    choice = choose(seen) if as_json else Choice({}, ())
    if not choice.columns:
        as_json, choice = False, Choice(_raw(seen, len(values)), ())
    sizes = pc.binary_length(values)
    mean, largest = float(pc.mean(sizes).as_py()), int(pc.max(sizes).as_py())
    window = propose(records["timestamp"], choice.columns if as_json else {}, seen.fields, total, mean, now)
    limits, batch_why = _batch(mean, largest)
    config = _config(topic, "json" if as_json else "raw", choice, window, limits)
    sentences = [
        *_counts(records, total, partitions),
        f"{mean:,.0f} bytes a record on average, {largest:,} at most",
        *_keys(records),
        *_fit(config, values, seen, as_json),
        *(f"left out: {each}" for each in choice.left_out),
    ]
    return Draft(topic, config, choice.columns, window.why, batch_why, tuple(sentences))


def _config(
    topic: str, format_: Literal["json", "raw"], choice: Choice, window: WindowChoice, limits: BatchLimits
) -> ConsumerConfig:
    columns = {name: proposed.column.model_dump() for name, proposed in choice.columns.items()}
    return ConsumerConfig.model_validate(
        {
            "topic": topic,
            "format": format_,
            "schema": columns,
            "window": window.window.model_dump(),
            "batch": limits.model_dump(),
        }
    )


def _raw(seen: Seen, count: int) -> dict[str, Proposed]:
    kind = "string" if seen.texts == count else "binary"
    return {"value": Proposed("value", Column(type=kind), ("value",), "", "")}


def _counts(records: pa.RecordBatch, total: int, partitions: int) -> list[str]:
    count = records.num_rows
    which = "all" if count >= total else f"{count:,} of about {total:,}"
    where = "1 partition" if partitions == 1 else f"{partitions} partitions"
    tombstones = records["value"].null_count
    found = [f"{which} records, the first and the last of {where}" if which != "all" else f"all {count:,} records of {where}"]
    if own := extent(records["timestamp"]):
        found.append(f"record timestamps from {own}")
    found.append(f"{tombstones:,} tombstones ({tombstones / count:.1%})" if tombstones else "no tombstones")
    return found


def _keys(records: pa.RecordBatch) -> list[str]:
    keys = records["key"]
    distinct = len(keys.drop_null().unique())
    if not distinct:
        return ["no keys"]
    without = f"; {keys.null_count:,} records have none" if keys.null_count else ""
    return [f"{distinct:,} distinct keys{without}"]


def _fit(config: ConsumerConfig, values: pa.Array, seen: Seen, as_json: bool) -> list[str]:
    """What the consumer's own decoder makes of the sample under the proposed schema."""
    decoder = JsonDecoder(config.columns) if as_json else RawDecoder(config.columns)
    rejects = decoder.decode(values).rejects
    found = [] if as_json else _not_json(values, seen)
    if not rejects:
        return [*found, f"all {len(values):,} values fit this schema"]
    found.append(f"{len(values) - len(rejects):,} values fit this schema, {len(rejects):,} would be dead letters:")
    reasons = Counter(reject.reason for reject in rejects)
    examples = {reject.reason: reject.index for reject in reversed(rejects)}
    for reason, count in reasons.most_common(_SHOWN):
        example = shortened(values[examples[reason]].as_py().decode("utf-8", "backslashreplace"))
        found.append(f"  {count:,} x {reason}, such as {example}")
    return found


def _not_json(values: pa.Array, seen: Seen) -> list[str]:
    framed = sum(value.startswith(_MAGIC) for value in values.to_pylist())
    if framed * 2 > len(values):
        return ["values start with a zero byte, as a schema registry's Avro or Protobuf does: staged as bytes"]
    reason, count = seen.broken.most_common(1)[0] if seen.broken else ("no field can be a column", len(values))
    return [f"not staged as JSON: {count:,} x {reason}"]


def _batch(mean: float, largest: int) -> tuple[BatchLimits, str]:
    """Limits that give files worth reading without holding more than some memory."""
    memory = max(_MEMORY, _LARGEST_IN_MEMORY * largest)
    room = int(memory / max(mean, 1.0))
    records = min(BatchLimits().max_records, max(1, round(room, 1 - len(str(room)))))
    why = f"{records:,} records of {mean:,.0f} bytes are about {records * mean / 2**20:,.1f} MB"
    return BatchLimits(max_records=records, max_bytes=memory), why
