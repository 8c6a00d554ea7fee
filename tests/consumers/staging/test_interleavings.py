"""Every order in which two members can take one partition over and write it, with a crash at every point.

A and B hold one partition at one time, as a zombie and its successor do. Each goes through the steps of taking over and of
committing one batch; after any interleaving of any prefixes of these (what follows a prefix is a crash) a last owner finishes.
Their code differs: A rejects offset 1, B takes it. Whatever happened, each offset must then be in exactly one place, once.

Orders that differ only in neighbouring steps which touch different tables, or only read, are the same history, so of those
one is run.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.errors import OwnershipLost
from consumers.processing.decoding import decoder_for
from consumers.processing.strategies.stage.buffer import Buffer, shape
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.files import write_file
from consumers.staging.log import StagedCommit
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange, Position
from tests.consumers.parts import TP, consumer, message, offsets

END = 3
READS, STAGED, DEAD = "reads", "staged", "dead"


class Member:
    """One process, step by step. A step that loses ownership ends it."""

    STEPS = ("look", "take", "take_dead_letters", "require", "append", "commit")
    TOUCHES = (READS, STAGED, DEAD, READS, DEAD, STAGED)

    def __init__(self, parts: Consumer, rows: pa.Table, rejects: pa.Table | None) -> None:
        clock = ManualClock()
        self.staged = StagedTable(parts, clock)
        self.dead = DeadLetterTable(parts, clock)
        self.clock, self.rows, self.rejects = clock, rows, rejects
        self.alive = True
        self.seen: dict = {}
        self.taken: dict[object, Position] = {}

    def step(self, name: str) -> None:
        if not self.alive:
            return
        try:
            getattr(self, name)()
        except OwnershipLost:
            self.alive = False

    def look(self) -> None:
        self.seen = self.staged.positions([TP])

    def take(self) -> None:
        start = self.seen[TP].offset or 0
        takeover = StagedCommit("x", "acquire", "c", "m", topic_ids={"t": "id"}, starts={TP: start})
        self.taken, _ = self.staged.acquire(self.seen, takeover, frozenset(), {})

    def take_dead_letters(self) -> None:
        self.dead.acquire(self.taken, {TP: "id"})
        self.alive = self.taken[TP].offset != END

    def require(self) -> None:
        self.staged.require({TP: OffsetRange(0, END)}, self.epochs)

    def append(self) -> None:
        if self.rejects is not None:
            self.dead.append(self.rejects, self.epochs)

    def commit(self) -> None:
        file = write_file(self.staged.path, self.rows, "2013-01-01", self.clock)
        self.staged.commit([file], StagedCommit("x", "batch", "c", "m", ranges={TP: OffsetRange(0, END)}), self.epochs)

    @property
    def epochs(self) -> dict:
        return {TP: self.taken[TP].epoch}


def histories() -> Iterator[str]:
    """Interleavings such as "AABAB", one of each set of equal ones. Ends right after a read are left out: as before it."""
    ends = [n for n in range(len(Member.STEPS) + 1) if n == 0 or Member.TOUCHES[n - 1] != READS]

    def grow(done: str, a: int, b: int) -> Iterator[str]:
        if a in ends and b in ends:
            yield done
        for who, at in (("A", a), ("B", b)):
            if at == len(Member.STEPS):
                continue
            if who == "A" and done.endswith("B") and _independent(Member.TOUCHES[at], Member.TOUCHES[b - 1]):
                continue
            yield from grow(done + who, a + (who == "A"), b + (who == "B"))

    return grow("", 0, 0)


def _independent(one: str, other: str) -> bool:
    both = {one, other}
    return both == {READS} or both in ({READS, DEAD}, {STAGED, DEAD})


def _shaped(parts: Consumer, values: list[bytes]) -> tuple[pa.Table, pa.Table | None]:
    buffer = Buffer()
    buffer.add(shape(message(values), decoder_for(parts.config), parts.config.window, {TP: "id"}, 0), 0.0)
    return buffer.table().drop_columns(["_window"]), buffer.rejects()


@pytest.fixture
def world(tmp_path: Path) -> Callable[[], tuple[Consumer, Member, Member, Member]]:
    template = consumer(tmp_path / "template")
    rejecting = _shaped(template, [b'{"a":0}', b"bad", b'{"a":2}'])
    taking = _shaped(template, [b'{"a":0}', b'{"a":1}', b'{"a":2}'])
    Member(template, *taking)
    parts = consumer(tmp_path / "now")

    def make() -> tuple[Consumer, Member, Member, Member]:
        shutil.rmtree(tmp_path / "now", ignore_errors=True)
        shutil.copytree(tmp_path / "template", tmp_path / "now")
        return parts, Member(parts, *rejecting), Member(parts, *taking), Member(parts, *rejecting)

    return make


def _finish(last: Member) -> None:
    for step in Member.STEPS:
        last.step(step)


def test_after_any_order_of_two_members_and_any_crash_each_offset_is_in_one_place_once(world) -> None:
    wrong, ran = [], 0
    ended: set[str] = set()  # histories up to a step of a member that had ended before: the same without that step
    for history in histories():
        if any(history.startswith(known) for known in ended):
            continue
        parts, a, b, last = world()
        members = {"A": (a, iter(Member.STEPS)), "B": (b, iter(Member.STEPS))}
        for at, who in enumerate(history, 1):
            member, steps = members[who]
            if not member.alive:
                ended.add(history[:at])
            member.step(next(steps))
        _finish(last)
        places = offsets(parts.staged) + offsets(parts.dead_letters)
        if places != {("id", 0, offset): 1 for offset in range(END)}:
            wrong.append((history, dict(places)))
        ran += 1
    assert ran > 100
    assert not wrong, f"{len(wrong)} of {ran} histories: {wrong[:3]}"


def test_the_enumeration_would_notice_a_dead_letter_written_without_the_epoch(world, monkeypatch) -> None:
    monkeypatch.setattr(DeadLetterTable, "_epoch", lambda self, tp: 1)
    parts, a, b, last = world()
    for step in Member.STEPS[:3]:
        a.step(step)
    for step in Member.STEPS:
        b.step(step)
    a.step("append")
    _finish(last)
    assert offsets(parts.staged) + offsets(parts.dead_letters) != {("id", 0, o): 1 for o in range(END)}
