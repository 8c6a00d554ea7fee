"""What the sinks into SQL databases share: buffer messages, write a buffer in one transaction, try again, and tell the engine.

Synchronous: a transaction takes place in the polling thread, within `submit`, `poll` or `flush`. Between two tries nobody waits:
the next try is made by a later call, and messages are rejected while there is no room. What makes a repeat harmless is the
subclass's matter.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from consumers.database.dead_letters import Origin, write_dead_letters
from consumers.database.failures import Backoff, cause_of, explained, is_transient
from consumers.database.writes import Write
from consumers.errors import FatalError, OwnershipLost, TaskFailed
from consumers.processing.context import Surroundings
from consumers.processing.strategies.dead_letters.letters import letters_of
from consumers.processing.strategies.protocol import Commit, Message, MessageRejected
from consumers.processing.strategies.task import name_of, places
from consumers.types import Ranges, TopicPartition, join_ranges

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger(__name__)

_SAFE = "Nothing of it was committed; everything before is safe."
_IN_DOUBT = "Whether it was committed is not known, and need not be: the next start finds out and writes nothing twice."


@dataclass(frozen=True, slots=True)
class SqlBatch:
    """When a transaction is due: so many source records, bytes of them, or seconds since the first of them came."""

    max_records: int = 10_000
    max_bytes: int = 16 * 1024 * 1024
    max_latency_seconds: float = 1.0


DEFAULT_BATCH = SqlBatch()


@dataclass(slots=True)
class _Buffer(Generic[T]):
    messages: list[Message[T]] = field(default_factory=list)
    ranges: Ranges = field(default_factory=dict)
    records: int = 0
    nbytes: int = 0
    since: float = 0.0

    def add(self, message: Message[T], now: float) -> None:
        self.ranges = join_ranges(self.ranges, message.ranges)
        if not self.messages:
            self.since = now
        self.messages.append(message)
        self.records += 0 if message.more else sum(records.num_rows for records in message.source)
        self.nbytes += message.nbytes

    @property
    def whole(self) -> bool:
        """Whether there are messages, and everything that was made of their records is here."""
        return bool(self.messages) and not self.messages[-1].more


class SqlTransactions(ABC, Generic[T]):
    """A terminal strategy that writes what was submitted in transactions of one database."""

    def __init__(
        self,
        engine: Engine,
        consumer: str,
        write: Write[T],
        commit: Commit,
        around: Surroundings,
        batch: SqlBatch,
        backoff: Backoff,
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._write = write
        self._commit = commit
        self._around = around
        self._limits = batch
        self._backoff = backoff
        self._buffer: _Buffer[T] = _Buffer()
        self._failures = 0
        self._not_before = 0.0
        self._in_doubt = False

    def submit(self, message: Message[T]) -> None:
        """Take a message; a buffer that is full is written at once. Raises `MessageRejected` while a next try is waited for."""
        if self._failures and not self._attempt():
            # Also where there is room: what is in doubt must not grow, or nobody could tell any more whether it was committed.
            raise MessageRejected
        self._buffer.add(message, self._now())
        if self._full():
            self._attempt()

    def poll(self) -> None:
        """Write the buffer when it is due. Raises `OwnershipLost`, and `StorageError` after the last try."""
        if self._buffer.whole and (self._failures or self._aged()):
            self._attempt()

    def flush(self, timeout: float) -> bool:
        """Write the buffer, with as many tries as fit into `timeout` seconds."""
        deadline = self._now() + timeout
        while self._buffer.whole and not self._attempt():
            if self._not_before > deadline:
                return False
            self._around.clock.sleep(max(0.0, self._not_before - self._now()))
        return not self._buffer.messages

    def discard(self) -> None:
        """Forget the buffer."""
        self._buffer, self._failures, self._not_before, self._in_doubt = _Buffer(), 0, 0.0, False

    def close(self) -> None:
        """Forget the buffer. The engine stays the caller's."""
        self.discard()

    @abstractmethod
    def _admit(self, connection: Connection, messages: Sequence[Message[T]], ranges: Ranges) -> Sequence[T]:
        """First in the transaction: make a repeat impossible. Returns the payloads to write; raises `OwnershipLost`."""

    @abstractmethod
    def _landed(self, ranges: Ranges) -> bool:
        """Whether a transaction over `ranges`, whose COMMIT got no answer, is committed after all."""

    def _ask_first(self, ranges: Ranges) -> None:
        """Before a transaction, outside of it."""

    def _origin(self, tp: TopicPartition) -> Origin:
        """Which incarnation of a partition's log its records are of, as far as it is known."""
        return Origin()

    def _attempt(self) -> bool:
        """Write the buffer, unless it is too early to try again. Whether it is written."""
        if self._now() < self._not_before:
            return False
        began = self._now()
        try:
            self._ask_first(self._buffer.ranges)
            self._transact()
        except SQLAlchemyError as error:
            self._put_off(error)
            return False
        done, self._buffer = self._buffer, _Buffer()
        self._failures, self._in_doubt = 0, False
        metrics = self._around.metrics
        metrics.observe("commit_seconds", self._now() - began)
        metrics.observe("batch_records", done.records)
        metrics.observe("batch_bytes", done.nbytes)
        metrics.count("dead_letters", sum(len(message.rejected) for message in done.messages))
        self._commit(done.ranges)
        return True

    def _transact(self) -> None:
        messages, ranges, doubtful = self._buffer.messages, self._buffer.ranges, self._in_doubt
        try:
            with self._engine.connect() as connection, connection.begin():
                self._fill(connection, messages, ranges)
                # From here on an error may hide that the database did commit.
                self._in_doubt = True
        except OwnershipLost:
            # By whom? If a try before ended in a COMMIT without an answer, perhaps by that one.
            if not (doubtful and self._landed(ranges)):
                raise

    def _fill(self, connection: Connection, messages: Sequence[Message[T]], ranges: Ranges) -> None:
        began = self._now()
        payloads = self._admit(connection, messages, ranges)
        letters = [letters_of(message) for message in messages if message.rejected]
        if letters:
            now = datetime.fromtimestamp(self._around.clock.time(), UTC)
            write_dead_letters(connection, self._consumer, pa.Table.from_batches(letters), self._origin, now)
        self._users(self._write, ranges, connection, payloads)
        self._around.metrics.observe("flush_seconds", self._now() - began)

    def _users(self, function: Callable[..., R], ranges: Ranges, *arguments: Any) -> R:
        """Call what is the user's. Raises `TaskFailed` for what is not the database's error."""
        try:
            return function(*arguments)
        except (OwnershipLost, FatalError, SQLAlchemyError):
            raise
        except Exception as error:
            raise TaskFailed(
                f"The function {name_of(function)}, which writes for consumer {self._consumer}, raised {type(error).__name__}: "
                f"{error}, on {places(ranges)}. Nothing of it was committed; everything before is safe. Mend it, or reject "
                "records that it cannot take in a step before (RunTask), and start again."
            ) from error

    def _put_off(self, error: SQLAlchemyError) -> None:
        """Plan the next try, or raise `StorageError` where there is none."""
        self._failures += 1
        if not is_transient(error) or self._failures >= self._backoff.attempts:
            what = f"consumer {self._consumer}: writing {places(self._buffer.ranges)}"
            raise explained(error, self._engine, what, _IN_DOUBT if self._in_doubt else _SAFE) from cause_of(error)
        pause = self._backoff.pause(self._failures, self._around.random)
        self._not_before = self._now() + pause
        self._around.metrics.count("retries")
        log.warning("%s: the database asks for patience (%s); again in %.2f s", self._consumer, _first_line(error), pause)

    def _aged(self) -> bool:
        return self._now() - self._buffer.since >= self._limits.max_latency_seconds

    def _full(self) -> bool:
        if not self._buffer.whole:
            return False
        return self._buffer.records >= self._limits.max_records or self._buffer.nbytes >= self._limits.max_bytes

    def _now(self) -> float:
        return self._around.clock.monotonic()


def _first_line(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
