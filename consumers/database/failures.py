"""What an error of a database means: try again, or stop and say what to do. And how long to wait between tries."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from consumers.clock import Clock
from consumers.errors import StorageError

R = TypeVar("R")
_SQLITE_BUSY, _SQLITE_LOCKED = 5, 6
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_TRANSIENT_CLASSES = ("08",)  # connection exceptions
_TRANSIENT_STATES = {
    "25006",  # read-only transaction: the server is a standby until its failover ends
    "40001",  # serialization failure
    "40P01",  # deadlock
    "53300",  # too many connections
    "55P03",  # lock not available
    "57014",  # cancelled, also by statement_timeout
    "57P01",  # shutdown by an administrator
    "57P02",  # crash of another backend
    "57P03",  # the server is starting
}
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a transaction is tried, and the longest pauses between: doubled each time up to `most_seconds`, and jittered."""

    attempts: int = 8
    first_seconds: float = 0.1
    most_seconds: float = 10.0

    def pause(self, failures: int, chance: random.Random) -> float:
        """Seconds to wait after the n-th failure in a row (n from 1)."""
        return chance.uniform(0.0, min(self.most_seconds, self.first_seconds * 2.0 ** (failures - 1)))


DEFAULT_BACKOFF = Backoff()


def is_transient(error: SQLAlchemyError) -> bool:
    """Whether the same transaction may well succeed when it is tried again."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in {_SQLITE_BUSY, _SQLITE_LOCKED}
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        # The server never answered: refused, or gone.
        return isinstance(error, OperationalError) and type(error.orig).__module__.startswith("psycopg")
    return state in _TRANSIENT_STATES or state.startswith(_TRANSIENT_CLASSES)


def patiently(work: Callable[[], R], engine: Engine, what: str, clock: Clock, chance: random.Random, backoff: Backoff) -> R:
    """Do what may be done twice, again after transient errors; waits between. Raises `StorageError`, which says `what` failed."""
    failures = 0
    while True:
        try:
            return work()
        except SQLAlchemyError as error:
            failures += 1
            if failures >= backoff.attempts or not is_transient(error):
                raise explained(error, engine, what, "Everything committed is safe.") from cause_of(error)
            clock.sleep(backoff.pause(failures, chance))


def explained(error: SQLAlchemyError, engine: Engine, what: str, safe: str) -> StorageError:
    """The error in an operator's words, without password, statement and parameters."""
    cause = cause_of(error)
    text = " ".join(str(cause).split()) or type(cause).__name__
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    todo = (
        "It kept failing; see whether the database is up, reachable and not overloaded, and start again."
        if is_transient(error)
        else "Trying again would not help: mend the table, the rights or the rows that are written to it, and start again."
    )
    return StorageError(f"{what} failed in {place(engine)}: {text}. {safe} {todo}")


def cause_of(error: SQLAlchemyError) -> BaseException:
    """The driver's own error, to be the cause of ours: SQLAlchemy's has the statement in it, and the rows to be written."""
    return error.orig if isinstance(error, StatementError) and error.orig is not None else error


def place(engine: Engine) -> str:
    """Which database it is, as far as that is no secret."""
    url = engine.url
    host = f" on {url.host}{f':{url.port}' if url.port else ''}" if url.host else ""
    return f"the {engine.dialect.name} database {url.database or '(in memory)'}{host}"
