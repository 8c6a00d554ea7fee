"""`CommitPositions`: the last step where nothing but the position is to be kept."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from consumers.clock import Clock, SystemClock
from consumers.errors import FatalError
from consumers.processing.strategies.protocol import Commit, Message
from consumers.processing.strategies.task import places
from consumers.types import OffsetRange, Ranges, TopicPartition, join_ranges

T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """When positions are committed: `seconds` after the first that is not, or once `offsets` are not, whichever comes first."""

    seconds: float = 1.0
    offsets: int | None = None


IMMEDIATELY = CommitPolicy(seconds=0.0)
"""With every message."""


class CommitPositions(Generic[T_contra]):
    """Commits the offsets of messages that come to it: whatever comes here counts as done.

    By a policy, and on `flush`, which the engine calls when partitions are revoked and when it ends.
    """

    def __init__(self, commit: Commit, policy: CommitPolicy = CommitPolicy(), clock: Clock | None = None) -> None:
        self._commit = commit
        self._policy = policy
        self._clock = clock or SystemClock()
        self._done: dict[TopicPartition, OffsetRange] = {}
        self._since = 0.0

    def submit(self, message: Message[T_contra]) -> None:
        """Never refuses. Raises `FatalError` for a message with rejected records: committing it would drop them."""
        if message.rejected:
            raise FatalError(_unsettled(message))
        if not self._done:
            self._since = self._clock.monotonic()
        self._done = join_ranges(self._done, message.ranges)
        self.poll()

    def poll(self) -> None:
        if self._done and self._due(self._done):
            self.flush(0)

    def flush(self, timeout: float) -> bool:
        done, self._done = self._done, {}
        if any(done.values()):
            self._commit(done)
        return True

    def discard(self) -> None:
        self._done = {}

    def close(self) -> None:
        self.discard()

    def _due(self, done: Ranges) -> bool:
        limit = self._policy.offsets
        if limit is not None and sum(map(len, done.values())) >= limit:
            return True
        return self._clock.monotonic() - self._since >= self._policy.seconds


def _unsettled(message: Message[object]) -> str:
    first = message.rejected[0]
    return (
        f"{len(message.rejected)} invalid records came to CommitPositions on {places(message.ranges)}, the first "
        f"{first.partition} offset {first.offset}: {first.reason}. Committing would drop them, so nothing from these offsets "
        "on was committed. Put DeadLetters before CommitPositions (after the last step that can reject a record) and start again."
    )
