"""Replacing a window: what is in the table afterwards, also beside ingestion, beside another rewrite, and after a crash."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.errors import StorageError
from consumers.staging.log import commits
from consumers.staging.mend import LEFT_BEHIND_SECONDS, mend
from consumers.staging.positions import committed_positions
from consumers.staging.resolve import Resolver
from consumers.staging.rewrite import Replacement, Rewriter, Snapshot
from tests.consumers.parts import DAY_MS, TP, consumer, contents
from tests.consumers.staging.rewriting import (
    BAD,
    GOOD,
    LATER,
    WINDOW,
    Ingestion,
    again,
    as_rows,
    letters,
    replacement,
    rows,
    shaped,
    table,
    waiting,
)  # fmt: skip
from tests.killing import killed


@pytest.fixture
def old(tmp_path: Path) -> Consumer:
    return consumer(tmp_path)


def test_a_window_is_replaced_in_one_commit_that_leaves_the_positions(old: Consumer, tmp_path: Path) -> None:
    Ingestion(old).stage(GOOD, GOOD, GOOD)
    wider = consumer(tmp_path, schema={"a": "long", "b": "long"})
    done = Rewriter(wider, ManualClock(2000)).rewrite(WINDOW, again(wider, [LATER, LATER, LATER]))
    assert done is not None and (done.kind, done.rows, done.removed, done.by) == ("rewrite", 3, 3, "somebody")
    assert commits(old.staged)[-1].commit_id == done.commit_id
    assert contents(old.staged).select(["_offset", "b"]).to_pydict() == {"_offset": [0, 1, 2], "b": [2, 2, 2]}
    assert committed_positions(old.staged, "c", "t", 1) == {TP: 3}


def test_a_window_that_holds_just_that_is_left_alone(old: Consumer) -> None:
    Ingestion(old).stage(GOOD, BAD, GOOD)
    before = DeltaTable(old.staged).version(), DeltaTable(old.dead_letters).version()
    assert Rewriter(old, ManualClock()).rewrite(WINDOW, again(old, [GOOD, BAD, GOOD])) is None
    assert (DeltaTable(old.staged).version(), DeltaTable(old.dead_letters).version()) == before


def test_what_ingestion_adds_to_the_window_meanwhile_stays(old: Consumer) -> None:
    member = Ingestion(old)
    member.stage(GOOD, GOOD)

    def make(before: Snapshot) -> Replacement:
        member.stage(GOOD)
        return replacement(as_rows(old, [GOOD]))

    Rewriter(old, ManualClock()).rewrite(WINDOW, make)
    member.stage(GOOD)
    assert rows(old) == [0, 2, 3]


def test_a_member_whose_commits_meet_a_rewrite_and_its_marks_makes_them_all_the_same(old: Consumer) -> None:
    member = Ingestion(old)
    member.stage(GOOD, BAD)
    staged, dead = member.writer.staged, member.writer.dead_letters
    require, require_dead, calls = staged.require, dead._require, []

    def before_the_rows(*args: object) -> None:
        require(*args)  # type: ignore[arg-type]
        calls.append("rows")
        if calls.count("rows") == 2:  # after the one that the dead letters ask for
            Rewriter(old, ManualClock()).rewrite(WINDOW, again(old, [GOOD, GOOD]))

    def before_the_dead_letters(*args: object) -> None:
        require_dead(*args)  # type: ignore[arg-type]
        calls.append("dead")
        if calls.count("dead") == 2:  # after the one that the file waits for
            resolver = Resolver(old, ManualClock())
            resolver.mark(as_rows(old, [GOOD], 1), shaped(old, [BAD], 1).rejects, "x")

    staged.require, dead._require = before_the_rows, before_the_dead_letters  # type: ignore[method-assign]
    member.stage(GOOD, BAD)
    assert calls == ["rows", "dead", "dead", "dead", "rows", "rows"]
    assert rows(old) == [0, 1, 2] and letters(old) == {1: (None, 1, True), 3: (None, None, False)}


def test_a_rewrite_by_a_definition_that_lacks_a_newer_column_is_refused_and_keeps_its_values(
    old: Consumer, tmp_path: Path
) -> None:
    rewriter = Rewriter(old, ManualClock())
    Ingestion(consumer(tmp_path, schema={"a": "long", "b": "long"})).stage(LATER, LATER)
    with pytest.raises(StorageError, match=r"b \(in the table only\)"):
        rewriter.rewrite(WINDOW, lambda before: replacement(before.rows.slice(1)))
    assert contents(old.staged)["b"].to_pylist() == [2, 2]


def test_of_two_rewrites_at_once_the_second_starts_from_what_the_first_left(old: Consumer) -> None:
    Ingestion(old).stage(GOOD, GOOD, GOOD)
    seen: list[int] = []

    def make(before: Snapshot) -> Replacement:
        seen.append(before.rows.num_rows)
        if len(seen) == 1:
            Rewriter(old, ManualClock()).rewrite(WINDOW, lambda now: replacement(now.rows.slice(0, 2)))
        return replacement(before.rows.slice(0, before.rows.num_rows - 1))

    Rewriter(old, ManualClock()).rewrite(WINDOW, make)
    assert seen == [3, 2] and rows(old) == [0]


def test_a_rewrite_that_loses_to_one_of_another_window_keeps_what_it_made(old: Consumer) -> None:
    member = Ingestion(old)
    member.stage(GOOD, GOOD, stamps=[DAY_MS, DAY_MS + 86_400_000])
    made: list[Snapshot] = []

    def make(before: Snapshot) -> Replacement:
        made.append(before)
        Rewriter(old, ManualClock()).rewrite("2013-01-02", lambda now: replacement(now.rows.slice(0, 0)))
        return replacement(before.rows.slice(0, 0))

    Rewriter(old, ManualClock()).rewrite(WINDOW, make)
    assert len(made) == 1 and rows(old) == []


def test_rows_that_cannot_be_decoded_any_more_become_dead_letters(old: Consumer) -> None:
    Ingestion(old).stage(GOOD, GOOD, BAD)
    done = Rewriter(old, ManualClock()).rewrite(WINDOW, again(old, [GOOD, b"worse", BAD]))
    assert done is not None and (done.rows, done.removed, done.dead_letters, done.skipped) == (1, 2, 1, 0)
    assert rows(old) == [0] and letters(old) == {1: (None, None, False), 2: (None, None, False)}


def test_dead_letters_that_become_rows_are_marked_with_the_schema_that_did_it(old: Consumer) -> None:
    Ingestion(old).stage(GOOD, BAD)
    done = Rewriter(old, ManualClock()).rewrite(WINDOW, again(old, [GOOD, GOOD]))
    assert done is not None and done.resolved == 1
    assert rows(old) == [0, 1] and waiting(old) == []
    assert table(old.dead_letters)["_resolved_by"].to_pylist() == [done.schema_id]


def test_windows_from_before_the_start_can_be_loaded(old: Consumer) -> None:
    member = Ingestion(old, first=5)
    member.stage(GOOD)
    rewriter = Rewriter(old, ManualClock())
    done = rewriter.rewrite(WINDOW, lambda now: replacement(pa.concat_tables([now.rows, as_rows(old, [GOOD, GOOD], 3)])))
    assert done is not None and rows(old) == [3, 4, 5]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda now, more: pa.concat_tables([now, more]), "at or past the position"),
        (lambda now, more: pa.concat_tables([now, now]), "2 records twice"),
        (lambda now, more: now.set_column(now.num_columns - 1, "_window", pa.array(["x"] * 2)), "of another window"),
    ],
)
def test_rows_that_do_not_belong_there_are_refused(old: Consumer, change: object, said: str) -> None:
    Ingestion(old).stage(GOOD, GOOD)
    version = DeltaTable(old.staged).version()
    with pytest.raises(StorageError, match=said):
        Rewriter(old, ManualClock()).rewrite(
            WINDOW,
            lambda now: replacement(change(now.rows, as_rows(old, [GOOD], 2))),  # type: ignore[operator]
        )
    assert DeltaTable(old.staged).version() == version


def test_a_record_that_has_a_row_in_another_window_is_refused(old: Consumer) -> None:
    Ingestion(old).stage(GOOD, stamps=[DAY_MS + 86_400_000])
    with pytest.raises(StorageError, match="has a row in another window"):
        Rewriter(old, ManualClock()).rewrite(WINDOW, lambda now: replacement(as_rows(old, [GOOD])))


@pytest.mark.parametrize("step", ["append", "_commit", "conclude", "mark"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_is_made_good_by_the_next_rewrite(old: Consumer, step: str, when: str) -> None:
    Ingestion(old).stage(GOOD, BAD, GOOD)
    make = again(old, [GOOD, GOOD, BAD])  # 1 is fixed, 2 is not valid any more
    with killed(Rewriter if step == "_commit" else Resolver, step, when):
        Rewriter(old, ManualClock(1000)).rewrite(WINDOW, make)
    Rewriter(old, ManualClock(1000 + LEFT_BEHIND_SECONDS)).rewrite(WINDOW, make)
    assert rows(old) == [0, 1]
    assert letters(old) == {1: (None, None, True), 2: (None, None, False)}
    assert mend(old, ManualClock(9e9)) == 0


def test_the_dead_letters_of_a_rewrite_under_way_are_left_to_it(old: Consumer) -> None:
    Ingestion(old).stage(GOOD, GOOD)

    def make(before: Snapshot) -> Replacement:
        return again(old, [GOOD, BAD])(before)

    rewriter = Rewriter(old, ManualClock(1000))
    real = rewriter._commit
    rewriter._commit = lambda *args: (mend(old, ManualClock(1001)), real(*args))[1]  # type: ignore[method-assign]
    rewriter.rewrite(WINDOW, make)
    assert rows(old) == [0] and waiting(old) == [1]


def test_a_rewrite_that_was_given_up_on_cannot_commit_without_its_dead_letters(old: Consumer) -> None:
    Ingestion(old).stage(GOOD, GOOD)
    rewriter = Rewriter(old, ManualClock(1000))
    real, late = rewriter._commit, [True]

    def slow(*args: object) -> object:
        if late.pop() if late else False:
            mend(old, ManualClock(1000 + LEFT_BEHIND_SECONDS))
            assert waiting(old) == []
        return real(*args)  # type: ignore[arg-type]

    rewriter._commit = slow  # type: ignore[method-assign,assignment]
    rewriter.rewrite(WINDOW, again(old, [GOOD, BAD]))
    assert rows(old) == [0] and letters(old) == {1: (None, None, False)}
