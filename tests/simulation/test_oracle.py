"""The oracle itself: every kind of finding is found in what is planted, and nothing where all is well."""

from dataclasses import replace

import pytest

from tests.simulation.oracle import Loss, Output, Produced, Promise, Seen, judge


def produced(uid: str, offset: int, kind: str = "row", **more: object) -> Produced:
    return Produced(uid, 0, offset, uid.encode(), kind, **more)  # type: ignore[arg-type]


def seen(uid: str, offset: int, by: str = "") -> Seen:
    return Seen(uid, 0, offset, uid.encode(), by)


RECORDS = [produced("a", 0), produced("b", 1), produced("bad", 2, "invalid"), produced("no", 3, "dropped"), produced("c", 4)]
ROWS = [seen("a", 0), seen("b", 1), seen("c", 4)]
LETTERS = [seen("bad", 2)]
ONCE = Promise()
AT_LEAST_ONCE = Promise(exactly_once=False, letters_exactly_once=False, losses_recorded=False)


def kinds(records: list[Produced], rows: list[Seen], letters: list[Seen], promise: Promise = ONCE, *losses: Loss) -> list[str]:
    return [finding.partition(":")[0] for finding in judge(records, Output(rows, letters, losses), promise)]


def test_nothing_is_found_where_all_is_well() -> None:
    assert kinds(RECORDS, ROWS, LETTERS) == kinds(RECORDS, ROWS, LETTERS, AT_LEAST_ONCE) == []


@pytest.mark.parametrize(
    ("rows", "letters", "found"),
    [
        (ROWS[:-1], LETTERS, ["lost"]),
        ([*ROWS, ROWS[-1]], LETTERS, ["twice"]),
        (ROWS, [], ["lost"]),
        (ROWS, LETTERS * 2, ["twice"]),
        ([*ROWS, seen("no", 3)], LETTERS, ["misplaced", "out of order"]),
        ([ROWS[0], seen("b", 1), seen("bad", 2), ROWS[2]], LETTERS, ["misplaced"]),
        ([ROWS[0], seen("b", 1), seen("bad", 2), ROWS[2]], [], ["misplaced", "lost"]),
        ([ROWS[1], ROWS[0], ROWS[2]], LETTERS, ["out of order"]),
        ([*ROWS, seen("who", 9)], LETTERS, ["unknown"]),
        ([ROWS[0], ROWS[1]._replace(value=b"other"), ROWS[2]], LETTERS, ["changed"]),
        ([ROWS[0], ROWS[1]._replace(offset=3), ROWS[2]], LETTERS, ["changed"]),
    ],
)
def test_what_is_planted_is_found(rows: list[Seen], letters: list[Seen], found: list[str]) -> None:
    assert kinds(RECORDS, rows, letters) == found


def test_a_record_of_an_aborted_transaction_is_found() -> None:
    records = [replace(RECORDS[0], visible=False), *RECORDS[1:]]
    assert kinds(records, ROWS, LETTERS) == ["aborted"]
    assert kinds(records, ROWS[1:], LETTERS) == []


def test_repeats_are_allowed_at_least_once_but_only_by_another_attempt_and_after_a_failure() -> None:
    rows = [seen("a", 0, "m1"), seen("a", 0, "m2"), seen("b", 1, "m2"), seen("c", 4, "m2")]
    assert kinds(RECORDS, rows, LETTERS, AT_LEAST_ONCE) == []
    assert kinds(RECORDS, rows, LETTERS, replace(AT_LEAST_ONCE, failures=False)) == ["twice"]
    assert kinds(RECORDS, [row._replace(by="m1") for row in rows], LETTERS, AT_LEAST_ONCE) == ["out of order"]


def test_what_retention_took_must_be_recorded_and_only_that() -> None:
    records = [replace(RECORDS[0], gone="retention"), *RECORDS[1:]]
    assert kinds(records, ROWS[1:], LETTERS) == ["lost"]
    assert kinds(records, ROWS[1:], LETTERS, ONCE, Loss(0, 0, 1)) == []
    assert kinds(records, ROWS[1:], LETTERS, ONCE, Loss(1, 0, 1)) == ["lost"]
    assert kinds(records, ROWS, LETTERS, ONCE, Loss(0, 0, 1)) == ["beside"]


def test_what_compaction_took_and_what_nobody_had_begun_to_read_may_be_missing() -> None:
    for gone in ("compaction", "unread"):
        assert kinds([replace(RECORDS[0], gone=gone), *RECORDS[1:]], ROWS[1:], LETTERS) == []  # type: ignore[arg-type]


def test_a_deleted_topic_excuses_what_was_unread_once_that_is_recorded() -> None:
    records = [replace(record, gone="deleted") for record in RECORDS]
    assert kinds(records, ROWS[:1], []) == ["lost", "lost", "lost"]
    assert kinds(records, ROWS[:1], [], ONCE, Loss(0, 1, 1)) == []
    assert kinds(records, [], [], ONCE, Loss(0, 1, 1)) == ["lost"]
