"""Dead letters tried again: what becomes of them, beside ingestion, and after a crash between any two commits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.table import TableMerger

from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.processing.replay import NOT_OURS, Author, ReplayResult, Selection, replay
from consumers.processing.starts import Start
from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from tests.consumers.parts import DAY_MS, TP, consumer
from tests.consumers.staging.rewriting import GOOD, Ingestion, letters, rows, table, waiting
from tests.killing import Killed

EVERYTHING = Selection()
EMPTY, WORSE = b"{}", b"no json"
"""A record that only the old definition refuses, and one that no definition takes."""


@pytest.fixture
def old(tmp_path: Path) -> Consumer:
    return consumer(tmp_path, schema={"a": {"type": "long", "nullable": False}})


@pytest.fixture
def new(tmp_path: Path) -> Consumer:
    return consumer(tmp_path, batch={"max_records": 2})


def go(parts: Consumer, select: Selection = EVERYTHING, **more: Any) -> ReplayResult:
    return replay(parts, select, "v2", ManualClock(5000), **more)


def test_what_is_valid_by_now_is_staged_and_marked_and_the_rest_stays_with_its_new_reason(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(GOOD, EMPTY, WORSE, GOOD, EMPTY)
    result = go(new, author=Author("somebody", "the field may be missing"))
    assert (result.fixed, result.still_invalid, result.already_resolved, result.not_final) == (2, 1, 0, 0)
    assert rows(new) == [0, 1, 3, 4]
    assert letters(new) == {1: (None, None, True), 2: (None, 1, False), 4: (None, None, True)}
    marked = {r["_offset"]: r["_resolved_by"] for r in table(new.dead_letters).to_pylist()}
    assert marked == {1: "v2", 2: None, 4: "v2"}
    assert {(c.by, c.why, c.resolved) for c in commits(new.staged) if c.kind == "replay"} == {
        ("somebody", "the field may be missing", 1)
    }
    assert sum(result.fixed_by_reason.values()) == 2 and sum(result.invalid_by_reason.values()) == 1
    assert committed_positions(new.staged, "c", "t", 1) == {TP: 5}


def test_a_second_replay_changes_nothing_but_the_attempts(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(EMPTY, WORSE)
    go(new)
    version = DeltaTable(new.staged).version()
    again = go(new)
    assert (again.fixed, again.still_invalid) == (0, 1)
    assert DeltaTable(new.staged).version() == version and rows(new) == [0] and letters(new)[1] == (None, 2, False)


def test_a_dry_run_says_the_same_and_changes_nothing(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(EMPTY, WORSE)
    before = letters(new)
    tried = go(new, dry_run=True)
    assert (tried.fixed, tried.still_invalid, tried.commits) == (1, 1, ())
    assert rows(new) == [] and letters(new) == before


@pytest.mark.parametrize(
    ("select", "fixed"),
    [
        (Selection(reason="missing"), [0, 1, 3]),
        (Selection(reason="another"), []),
        (Selection(windows=frozenset({"2013-01-02"})), [3]),
        (Selection(ids=frozenset({(0, 1), (0, 2), (1, 3)})), [1]),
        (Selection(ids=frozenset({(0, 1)}), windows=frozenset({"2013-01-02"})), []),
    ],
)
def test_only_what_was_selected_is_tried(old: Consumer, new: Consumer, select: Selection, fixed: list[int]) -> None:
    day = 86_400_000
    Ingestion(old).stage(EMPTY, EMPTY, WORSE, EMPTY, stamps=[DAY_MS, DAY_MS, DAY_MS, DAY_MS + day])
    go(new, select)
    assert rows(new) == fixed


def test_dead_letters_that_no_commit_has_passed_yet_are_left_alone(old: Consumer, new: Consumer) -> None:
    member = Ingestion(old)
    member.stage(EMPTY)
    member.reject(EMPTY)
    result = go(new)
    assert (result.fixed, result.not_final) == (1, 1) and rows(new) == [0]


def test_dead_letters_of_a_topic_that_was_replaced_are_left_alone(old: Consumer, new: Consumer) -> None:
    member = Ingestion(old)
    member.stage(EMPTY, EMPTY)
    member.owner.acquire(member.owner.positions([TP]), {TP: Start(0)}, "another")
    assert go(new).not_final == 2 and rows(new) == []


def test_a_record_that_belongs_to_another_table_by_now_stays_with_that_reason(old: Consumer, tmp_path: Path) -> None:
    Ingestion(old).stage(b'{"b": "x"}')
    chosen = consumer(tmp_path, schema={"a": "long", "b": "string"}, where={"column": "b", "in": ["y"]})
    assert go(chosen).invalid_by_reason == {NOT_OURS: 1} and rows(chosen) == []


def test_two_replays_at_once_stage_every_record_once(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(EMPTY, EMPTY, WORSE, EMPTY, EMPTY)
    raced: list[ReplayResult] = []
    with before_each_commit(lambda n: raced.append(go(new)) if n == 1 else None):
        result = go(new)
    assert rows(new) == [0, 1, 3, 4] and waiting(new) == [2]
    assert (raced[0].fixed, result.fixed, result.already_resolved) == (4, 0, 4)


STEPS = {"create_write_transaction": DeltaTable, "update": DeltaTable, "delete": DeltaTable, "execute": TableMerger}


@contextmanager
def before_each_commit(call: Callable[[int], None], after: Callable[[int], None] = lambda n: None) -> Iterator[list[int]]:
    """Call `call` before and `after` after every Delta commit, with its number; not for commits that these make themselves."""
    count, busy = [0], [False]

    def quietly(function: Callable[[int], None], number: int) -> None:
        busy[0] = True
        try:
            function(number)
        finally:
            busy[0] = False

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            if busy[0]:
                return real(*args, **more)
            count[0] += 1
            number = count[0]
            quietly(call, number)
            done = real(*args, **more)
            quietly(after, number)
            return done

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name, owner in STEPS.items():
            patch.setattr(owner, name, wrapped(getattr(owner, name)))
        yield count


def test_a_replay_without_a_crash_takes_four_commits(old: Consumer, new: Consumer) -> None:
    Ingestion(old).stage(EMPTY, WORSE, EMPTY, WORSE)
    with before_each_commit(lambda n: None) as count:
        go(new)
    assert count == [4]  # a chunk of two: staged, marked; and another


@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("between", [False, True])
def test_a_kill_at_any_commit_with_ingestion_in_between_loses_and_doubles_nothing(
    old: Consumer, new: Consumer, step: int, when: str, between: bool
) -> None:
    member = Ingestion(old)
    member.stage(EMPTY, WORSE, EMPTY, WORSE)

    def kill(number: int) -> None:
        if number == step:
            raise Killed

    def ingest(number: int) -> None:
        if between:
            member.stage(GOOD, EMPTY)
        if when == "before":
            kill(number)

    with before_each_commit(ingest, kill if when == "after" else lambda n: None), pytest.raises(Killed):
        go(new)
    go(new)
    every = range(member.next)
    invalid = {1, 3}
    assert rows(new) == [offset for offset in every if offset not in invalid]
    assert waiting(new) == sorted(invalid)
    assert set(letters(new)) == {0, 1, 2, 3} | set(range(5, member.next, 2))
