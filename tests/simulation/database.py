"""One SQLite database in memory for all members of a schedule, each with a connection of its own that can fail.

Making an engine costs more than a short schedule, so engines are kept and the tables emptied.
"""

import sqlite3
from collections import deque
from typing import Any

from sqlalchemy import Engine, StaticPool, create_engine

from consumers.database.tables import DEAD_LETTERS, LOSSES, POSITIONS, create_tables
from tests.simulation.crossings import Crossings

_URI = "file:simulation?mode=memory&cache=shared"


class Door:
    """Between one member and the database: `fails` are the errors to come, each for an `execute` or a `commit`."""

    def __init__(self) -> None:
        self.crossings: Crossings | None = None
        self.fails: deque[str] = deque()
        self.connections: list[_Connection] = []

    def hang_up(self) -> None:
        """The process has ended, and its connections with it."""
        while self.connections:
            self.connections.pop().close()

    def reset(self, crossings: Crossings | None) -> None:
        self.crossings = crossings
        self.fails.clear()

    def before(self, what: str) -> None:
        if self.crossings is not None:
            self.crossings.cross(f"before database {what}")
        if self.fails and self.fails[0] == what:
            self.fails.popleft()
            raise self._error(what)

    def after(self, what: str) -> None:
        if self.fails and self.fails[0] == f"answer to {what}":
            self.fails.popleft()
            raise self._error(f"answer to {what}")
        if self.crossings is not None:
            self.crossings.cross(f"after database {what}")

    def _error(self, what: str) -> sqlite3.OperationalError:
        if self.crossings is not None:
            self.crossings.note(f"the database fails: {what}")
        error = sqlite3.OperationalError(f"database is locked ({what}, as the test ordered)")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        return error


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *args: Any) -> "_Cursor":
        door: Door = self.connection.door  # type: ignore[attr-defined]
        door.before("execute")
        super().execute(sql, *args)
        door.after("execute")
        return self

    def executemany(self, sql: str, *args: Any) -> "_Cursor":
        door: Door = self.connection.door  # type: ignore[attr-defined]
        door.before("execute")
        super().executemany(sql, *args)
        door.after("execute")
        return self


class _Connection(sqlite3.Connection):
    door: Door
    cursors: list[_Cursor]

    def cursor(self, *args: Any) -> _Cursor:
        made = super().cursor(_Cursor)
        self.cursors.append(made)
        return made

    def close(self) -> None:
        """A cursor that something still refers to would hold its lock on the table until it is collected."""
        while self.cursors:
            self.cursors.pop().close()
        super().close()

    def commit(self) -> None:
        if not self.in_transaction:
            return
        self.door.before("commit")
        super().commit()
        self.door.after("commit")


class Databases:
    """The process's engines. `begin` empties the tables for a new schedule."""

    def __init__(self) -> None:
        self.raw = sqlite3.connect(_URI, uri=True, timeout=0, isolation_level=None)
        self.raw.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, part INTEGER, at INTEGER, uid TEXT, value BLOB)")
        self._slots: list[tuple[Door, Engine]] = []
        self._used = 0
        create_tables(self.engine(None)[1], POSITIONS, DEAD_LETTERS, LOSSES)

    def begin(self) -> None:
        """Nothing is in the tables, and every engine is free."""
        for door, engine in self._slots:
            door.reset(None)
            engine.dispose()
            door.hang_up()
        self._used = 0
        for table in ("rows", POSITIONS.name, DEAD_LETTERS.name, LOSSES.name):
            self.raw.execute(f"DELETE FROM {table}")

    def engine(self, crossings: Crossings | None) -> tuple[Door, Engine]:
        """For one more member."""
        if self._used == len(self._slots):
            self._slots.append(_slot())
        door, engine = self._slots[self._used]
        self._used += 1
        door.reset(crossings)
        return door, engine


def _slot() -> tuple[Door, Engine]:
    door = Door()

    def connect() -> _Connection:
        made = sqlite3.connect(_URI, uri=True, timeout=0, factory=_Connection, check_same_thread=False)
        made.door, made.cursors = door, []
        door.connections.append(made)
        return made

    return door, create_engine("sqlite://", creator=connect, poolclass=StaticPool)
