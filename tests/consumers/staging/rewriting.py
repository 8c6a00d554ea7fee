"""Tables that ingestion has filled, and what tests of rewrites and replays ask of them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from consumers.clock import Clock, ManualClock
from consumers.config import Consumer
from consumers.processing.decoding import decoder_for
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.buffer import Buffer, Shaped, shape
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.writer import TableWriter
from consumers.staging.rewrite import Replacement, Snapshot
from consumers.staging.schema import filled, staged_schema
from consumers.types import OffsetRange
from tests.consumers.parts import TP, message

WINDOW = "2013-01-01"
GOOD, BAD, LATER = b'{"a": 1}', b'{"a": "x"}', b'{"a": 1, "b": 2}'


class Ingestion:
    """A member that stages partition 0 of `t` from offset `first` on."""

    def __init__(self, parts: Consumer, clock: Clock | None = None, first: int = 0) -> None:
        self.consumer = parts
        self.clock = clock or ManualClock(1000)
        self.owner = Owner(parts, "m", self.clock)
        self.owner.acquire(self.owner.positions([TP]), {TP: Start(first)}, "id")
        self.writer = TableWriter(parts, "m", self.clock)
        self.next = first

    def stage(self, *values: bytes | None, stamps: list[int | None] | None = None) -> None:
        """Commit records at the next offsets."""
        buffer = Buffer()
        buffer.add(shaped(self.consumer, values, self.next, stamps, int(self.clock.time() * 1000)), 0.0)
        self.writer.write(buffer, self.owner.holds, {})
        self.next += len(values)

    def reject(self, *values: bytes) -> None:
        """Write the dead letters of records at the next offsets, and not the commit that would pass them."""
        rejects = shaped(self.consumer, values, self.next).rejects
        assert rejects is not None
        self.writer.dead_letters.append(rejects, {TP: self.owner.holds[TP].epoch})


def shaped(parts: Consumer, values: Any, first: int = 0, stamps: list[int | None] | None = None, now_ms: int = 5) -> Shaped:
    """What a definition makes of records."""
    return shape(message(values, first, stamps=stamps), decoder_for(parts.config), parts.config.window, {TP: "id"}, now_ms)


def as_rows(parts: Consumer, values: Any, first: int = 0) -> pa.Table:
    return filled(shaped(parts, values, first).rows, staged_schema(parts.config.columns))


def replacement(rows: pa.Table, rejects: pa.Table | None = None, end: int = 100) -> Replacement:
    return Replacement(rows, rejects, {TP: OffsetRange(0, end)}, {}, "somebody", "a reason")


def again(parts: Consumer, values: Any, first: int = 0) -> Any:
    """A `make` that gives what a definition makes of records now."""
    made = shaped(parts, values, first)

    def make(before: Snapshot) -> Replacement:
        return replacement(filled(made.rows, staged_schema(parts.config.columns)), made.rejects)

    return make


def rows(parts: Consumer) -> list[int]:
    """The offsets of the staged rows."""
    return sorted(table(parts.staged)["_offset"].to_pylist())


def letters(parts: Consumer) -> dict[int, tuple[str | None, int | None, bool]]:
    """The dead letters by offset: the rewrite that they wait for, how often they were tried again, whether they are resolved."""
    found = table(parts.dead_letters).select(["_offset", "_commit_id", "_attempts", "_resolved_at"]).to_pylist()
    by_offset = {r["_offset"]: (r["_commit_id"], r["_attempts"], r["_resolved_at"] is not None) for r in found}
    assert len(by_offset) == len(found), "an offset is in two dead letters"
    return by_offset


def waiting(parts: Consumer) -> list[int]:
    """The offsets of dead letters that are not resolved."""
    found = table(parts.dead_letters)
    return sorted(r["_offset"] for r in found.select(["_offset", "_resolved_at"]).to_pylist() if r["_resolved_at"] is None)


def table(path: Path) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table()
