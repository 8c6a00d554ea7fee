"""What a pass asks for does not grow with the table, the event log or the number of windows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from consumers.clock import ManualClock, SystemClock
from consumers.staging import history
from orchestration import mirror
from tests.orchestration.staged_tables import Tables, consumer_in

FEW, MANY = 3, 300


@contextmanager
def statements() -> Iterator[list[str]]:
    """What any database is asked in this block."""
    asked: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "INSERT", "UPDATE")):
            asked.append(statement)

    sa.event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        sa.event.remove(Engine, "before_cursor_execute", note)


def windows(count: int) -> dict[str, list[int]]:
    return {f"{2024 + place // 336}-{1 + place // 28 % 12:02d}-{1 + place % 28:02d}": [place] for place in range(count)}


def mirrored(folder: Path, instance: dg.DagsterInstance, count: int, clock: ManualClock) -> Tables:
    """A table with a commit for each of `count` windows, all of them mirrored, and one commit more."""
    tables = Tables(consumer_in(folder))
    tables.acquire(0)
    tables.batch(0, count, windows(count))
    mirror.catch_up(instance, tables.consumer, instance.report_runless_asset_event, clock)
    clock.advance(mirror.EVERY_SECONDS)
    return tables


def looked(folder: Path, count: int, clock: ManualClock) -> tuple[int, int]:
    """How many statements and how many commits of the log a pass over one new commit reads, after `count` windows."""
    read: list[int] = []
    with dg.DagsterInstance.ephemeral() as instance, pytest.MonkeyPatch.context() as patch:
        tables = mirrored(folder, instance, count, clock)
        for offset in range(5 if count == FEW else 25):
            tables.batch(count + offset, count + offset + 1, {"2024-01-01": [count + offset]})
        mirror.catch_up(instance, tables.consumer, instance.report_runless_asset_event, clock)
        clock.advance(mirror.EVERY_SECONDS)
        tables.batch(count + 25, count + 26, {"2024-01-01": [count + 25]})
        real = history._commit_info

        def noted(text: bytes) -> dict[str, Any]:
            read.append(len(text))
            return real(text)

        patch.setattr(history, "_commit_info", noted)
        with statements() as asked:
            mirror.catch_up(instance, tables.consumer, instance.report_runless_asset_event, clock)
    return len(asked), len(read)


def test_a_pass_asks_as_much_of_a_large_table_as_of_a_small_one(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().time())
    few, many = looked(tmp_path / "few", FEW, clock), looked(tmp_path / "many", MANY, clock)
    assert few == many
    assert many[0] > 0 and many[1] == 1


def test_comparing_everything_asks_once_for_all_windows(tmp_path: Path) -> None:
    clock, asked = ManualClock(SystemClock().time()), {}
    for count in (FEW, MANY):
        with dg.DagsterInstance.ephemeral() as instance:
            tables = mirrored(tmp_path / str(count), instance, count, clock)
            with statements() as made:
                assert mirror.compare(instance, tables.consumer, clock) == []
            asked[count] = len(made)
    assert asked[FEW] == asked[MANY] > 0
