"""What must hold between what was produced and what came out. Pure: it knows neither the engine nor how anything was written.

A record is known by its uid. Where it is (partition, offset) and what it says is what its producer was told.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Kind = Literal["row", "invalid", "dropped"]
"""What is to become of a record: something in the output, a dead letter, or nothing (a filter's)."""


@dataclass(slots=True)
class Produced:
    """A record as its producer knows it. `life` counts the topic's incarnations.

    `visible` is false for what a transaction took back. `gone` says why a reader may come too late: retention (which is to be
    recorded as a loss), compaction (which loses nothing that counts), that the topic was deleted, or that nobody had begun to
    read.
    """

    uid: str
    partition: int
    offset: int
    value: bytes | None
    kind: Kind
    life: int = 0
    visible: bool = True
    gone: Literal["", "retention", "compaction", "deleted", "unread"] = ""


class Seen(NamedTuple):
    """A record that came out, in the order of coming out. `by` names who wrote it, and within which of its attempts."""

    uid: str
    partition: int
    offset: int
    value: bytes | None
    by: str = ""


class Loss(NamedTuple):
    """Offsets that were recorded as lost: [start, end), or everything from `start` on where both are the same."""

    partition: int
    start: int
    end: int


@dataclass(slots=True)
class Output:
    """Everything that came out, in order."""

    rows: Sequence[Seen]
    letters: Sequence[Seen]
    losses: Sequence[Loss] = ()


@dataclass(slots=True)
class Promise:
    """What the pipeline promises: exactly once, or at least once (with repeats allowed once something had failed).

    `losses_recorded` says whether what retention took must stand in `Output.losses`; `losses_told_apart`, whether nothing else
    may.
    """

    exactly_once: bool = True
    letters_exactly_once: bool = True
    losses_recorded: bool = True
    failures: bool = True
    losses_told_apart: bool = True


def judge(produced: Iterable[Produced], output: Output, promise: Promise) -> list[str]:
    """What is wrong, in words; nothing when all is well."""
    known = {record.uid: record for record in produced}
    if any(record.life for record in known.values()):
        # A recorded loss does not say in which of the topic's incarnations it was, so only its absence can be held against it.
        promise = replace(promise, losses_told_apart=False)
    rows, letters = _by_uid(output.rows), _by_uid(output.letters)
    return [
        *_strangers(known, output),
        *(finding for record in known.values() for finding in _record(record, rows, letters, output, promise)),
        *_order(known, output.rows, promise.exactly_once),
    ]


def _by_uid(seen: Iterable[Seen]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        found[each.uid].append(each)
    return found


def _strangers(known: dict[str, Produced], output: Output) -> Iterable[str]:
    for what, seen in (("row", output.rows), ("dead letter", output.letters)):
        for each in seen:
            record = known.get(each.uid)
            if record is None:
                yield f"unknown: a {what} {each} that nobody produced"
            elif (each.partition, each.offset, each.value) != (record.partition, record.offset, record.value):
                yield f"changed: a {what} is {each}, and {record} was produced"


def _record(
    record: Produced, rows: dict[str, list[Seen]], letters: dict[str, list[Seen]], output: Output, promise: Promise
) -> Iterable[str]:
    as_row, as_letter = len(rows.get(record.uid, ())), len(letters.get(record.uid, ()))
    if not record.visible:
        if as_row or as_letter:
            yield f"aborted: {record} was taken back, and came out"
        return
    wanted, other = (as_letter, as_row) if record.kind == "invalid" else (as_row, as_letter)
    once = promise.letters_exactly_once if record.kind == "invalid" else promise.exactly_once
    if other:
        yield f"misplaced: {record} came out {as_row} times as a row and {as_letter} times as a dead letter"
    if record.kind == "dropped":
        if wanted:
            yield f"misplaced: {record} came out, and should have been filtered"
        return
    if wanted > 1 and (once or not promise.failures):
        yield f"twice: {record} came out {wanted} times"
    lost = [loss for loss in output.losses if _covers(loss, record)]
    if wanted and promise.losses_told_apart and record.gone == "retention" and any(loss.start < loss.end for loss in lost):
        yield f"beside: {record} came out, and is recorded as lost: {lost[0]}"
    if not wanted and not _excused(record, bool(lost), promise):
        yield f"lost: {record}"


def _excused(record: Produced, recorded: bool, promise: Promise) -> bool:
    if record.gone in ("compaction", "unread"):
        return True
    return bool(record.gone) and (recorded or not promise.losses_recorded)


def _covers(loss: Loss, record: Produced) -> bool:
    if loss.partition != record.partition:
        return False
    if loss.start == loss.end:
        return record.gone in ("deleted", "retention") and record.offset >= loss.start
    return loss.start <= record.offset < loss.end


def _order(known: dict[str, Produced], rows: Iterable[Seen], once: bool) -> Iterable[str]:
    """Offsets rise within a partition: overall for exactly once, else within an attempt of a member."""
    last: dict[tuple[object, ...], Seen] = {}
    for row in rows:
        record = known.get(row.uid)
        if record is None:
            continue
        where = (record.life, row.partition, "" if once else row.by)
        before = last.get(where)
        if before is not None and before.offset >= row.offset and (before.uid != row.uid or not once):
            yield f"out of order: {row} came after {before}"
        last[where] = row
