"""Errors of a database on purpose: for tests and demonstrations of what must not go wrong when they happen."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

BEFORE, AFTER, COMMIT, ANSWER = "before a statement", "after a statement", "before COMMIT", "after COMMIT"


@dataclass(slots=True)
class Faults:
    """What was injected so far, by place."""

    probability: float
    chance: random.Random
    injected: dict[str, int]

    def meet(self, place: str) -> bool:
        """Whether something goes wrong here."""
        wrong = self.chance.random() < self.probability
        if wrong:
            self.injected[place] += 1
        return wrong


@contextmanager
def faults(engine: Engine, probability: float, chance: random.Random) -> Iterator[Faults]:
    """Every statement and COMMIT of the engine fails with some probability, each before and after it took effect.

    The errors look like a lost connection (PostgreSQL) or a busy database (SQLite). After COMMIT is the worst place: it happened,
    and the answer is an error.
    """
    made = Faults(probability, chance, dict.fromkeys((BEFORE, AFTER, COMMIT, ANSWER), 0))
    commit = engine.dialect.do_commit

    def before(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if made.meet(BEFORE):
            raise OperationalError(statement, None, _error(engine, BEFORE))

    def after(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if made.meet(AFTER):
            raise OperationalError(statement, None, _error(engine, AFTER))

    def do_commit(connection: Any) -> None:
        if made.meet(COMMIT):
            raise _error(engine, COMMIT)
        commit(connection)
        if made.meet(ANSWER):
            raise _error(engine, ANSWER)

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    engine.dialect.do_commit = do_commit  # type: ignore[method-assign,assignment]
    try:
        yield made
    finally:
        engine.dialect.do_commit = commit  # type: ignore[method-assign]
        event.remove(engine, "before_cursor_execute", before)
        event.remove(engine, "after_cursor_execute", after)


def _error(engine: Engine, place: str) -> Exception:
    error: Exception = engine.dialect.loaded_dbapi.OperationalError(f"injected {place}")
    if isinstance(error, sqlite3.Error):
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error
