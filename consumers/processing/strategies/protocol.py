"""The seam between the engine and what is done with records: messages, and the strategies that take them.

A strategy is one step. Most hand what they made to the next one; the last makes it durable and says so to the engine through
`Commit`. All methods of a strategy are called by one thread, the polling one, and must return soon.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from consumers.types import Ranges, TopicPartition

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
T_contra = TypeVar("T_contra", contravariant=True)

Commit = Callable[[Ranges], None]
"""Told by the last strategy: everything in these offset ranges is durable. Ranges of a partition join, and come in order."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that is invalid, and why. Its bytes are in the message's `source`."""

    partition: TopicPartition
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Message(Generic[T_co]):
    """What was made of some records so far, and the offsets that it accounts for.

    `source` are the records as they came from the broker (columns of `RECORD_COLUMNS`), so that a dead letter has its exact bytes
    however late it is found to be one. `rejected` are the records that are invalid: they are in `ranges` and in `source`, and no
    longer in the payload. Whoever makes `ranges` durable makes them durable first. A payload may be empty: filtered records
    travel as nothing but their offsets, so that they hold no position back. `more` says that further messages are made of the
    same records: what becomes durable together with its position must not end before the last of them, which has the offsets.
    """

    payload: T_co
    ranges: Ranges
    source: tuple[pa.RecordBatch, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    more: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the source records: what the message costs while it is in flight, about.

        Of several messages made of the same records (`more`), the last counts for all.
        """
        return 0 if self.more else sum(records.nbytes for records in self.source)

    def with_payload(self, payload: U, rejected: tuple[Rejection, ...] = ()) -> "Message[U]":
        """The same offsets with another payload, and further rejections."""
        return Message(payload, self.ranges, self.source, self.rejected + rejected, self.more)

    def without_rejected(self) -> "Message[T_co]":
        """The same message once its dead letters are durable."""
        return replace(self, rejected=())


class MessageRejected(Exception):
    """Nothing more is taken for now: hold the message and offer it again. No part of it was taken."""


class Strategy(Protocol[T_contra]):
    """A step of processing. Messages leave it in the order in which they came.

    Errors other than `MessageRejected` end the run; nothing past the last `Commit` is committed then.
    """

    def submit(self, message: Message[T_contra]) -> None:
        """Take a message. Raises `MessageRejected`, having taken nothing, when it is full."""
        ...

    def poll(self) -> None:
        """Do what is due, and raise what failed since. Called often, also while nothing is submitted."""
        ...

    def flush(self, timeout: float) -> bool:
        """Bring everything submitted so far to its end, here and in the steps after, also what waits for more.

        False when that takes longer than `timeout` seconds; it then goes on by further polls.
        """
        ...

    def discard(self) -> None:
        """Forget everything that no `Commit` has told, here and in the steps after; it is submitted again. No wait."""
        ...

    def close(self) -> None:
        """`discard`, then let go of threads, processes and connections, here and in the steps after. Twice is once."""
        ...
