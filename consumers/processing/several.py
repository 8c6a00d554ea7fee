"""A consumer of several topics: in one process a member of the group for each, side by side, as one run.

The members know nothing of each other. They share the tables, whose positions name the topic, and the group.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from consumers.config import Consumer
from consumers.errors import BrokerError
from consumers.processing.context import Surroundings
from consumers.processing.processor import Limits
from consumers.staging.log import StagedCommit

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""How often to look for new topics that are like the pattern."""
_WAIT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What a run did: Delta commits, staged rows, dead letters, and why it ended."""

    commits: int
    rows: int
    dead_letters: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a member is told with, and tells."""

    stop: threading.Event
    limits: Limits
    on_commit: Callable[[StagedCommit], None]
    heartbeat: Callable[[], None]


Work = Callable[[Consumer, Hooks], IngestResult]
"""Be a member for a consumer of one topic."""


@dataclass
class _Member:
    """What the member of one topic has to say. Its thread and the one that watches share only plain assignments."""

    result: IngestResult | None = None
    error: BaseException | None = None
    beaten: bool = False

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def beat(self) -> None:
        self.beaten = True


class Several:
    """All topics of a consumer. Used by one thread, in which commits are told."""

    def __init__(
        self, consumer: Consumer, existing: Callable[[], Iterable[str]], work: Work, around: Surroundings, told: Hooks
    ) -> None:
        """`existing` tells the cluster's topics, and is asked where the definition has a pattern. `told` is for all topics
        together; its `stop` reaches the members directly, and is set whenever `run` ends.
        """
        self._consumer = consumer
        self._existing = existing
        self._work = work
        self._clock = around.clock
        self._told = told
        self._commits: queue.SimpleQueue[StagedCommit] = queue.SimpleQueue()
        self._members: dict[str, _Member] = {}
        self._threads: list[threading.Thread] = []
        self._sharing = 1
        self._began = self._looked = self._clock.monotonic()

    def run(self) -> IngestResult:
        """Until all members have ended. The first error stops the others, and is raised."""
        try:
            self._join()
            while self._going_on():
                self._tell(_WAIT_SECONDS)
                self._beat()
                if self._errors():
                    self._told.stop.set()
                self._look_again()
        finally:
            self._told.stop.set()
            for thread in self._threads:
                thread.join()
        self._tell(0.0)
        for error in self._errors():
            raise error
        return _together([member.result for member in self._members.values() if member.result is not None])

    def _going_on(self) -> bool:
        """Whether a member works, or may still join."""
        if not all(member.done for member in self._members.values()):
            return True
        return self._may_join() and self._left() != 0.0

    def _may_join(self) -> bool:
        more = self._consumer.config.topic_pattern is not None and not self._told.limits.until_caught_up
        return more and not self._told.stop.is_set()

    def _left(self) -> float | None:
        """Seconds; None where there is no limit."""
        limit = self._told.limits.max_seconds
        return None if limit is None else max(0.0, self._began + limit - self._clock.monotonic())

    def _join(self) -> None:
        """A member for each topic that has none yet. Raises `BrokerError`."""
        found = self._consumer.config.topics_among(self._existing)
        # Those that run keep their share of the memory: a topic that joins later gets one besides.
        self._sharing = max(self._sharing, len(found))
        for topic in found:
            if topic not in self._members:
                self._start(topic)

    def _start(self, topic: str) -> None:
        alone = self._consumer.of_topic(topic, self._sharing)
        member = self._members[topic] = _Member()
        limits = replace(self._told.limits, max_seconds=self._left())
        hooks = replace(self._told, limits=limits, on_commit=self._commits.put, heartbeat=member.beat)

        def be_member() -> None:
            try:
                member.result = self._work(alone, hooks)
            except BaseException as error:  # noqa: BLE001 - raised again by `run`
                member.error = error

        # A daemon thread: one that does not stop in time ends with the process, which a crash-safe commit allows.
        thread = threading.Thread(target=be_member, name=f"{self._consumer.name}-{topic}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _look_again(self) -> None:
        if not self._may_join() or self._clock.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = self._clock.monotonic()
        try:
            self._join()
        except BrokerError as error:
            log.warning("%s: looking for new topics failed, and is tried again: %s", self._consumer.name, error)

    def _tell(self, seconds: float) -> None:
        """Hand on the commits of all members; waits for the first."""
        try:
            self._told.on_commit(self._commits.get(timeout=seconds) if seconds else self._commits.get_nowait())
            while True:
                self._told.on_commit(self._commits.get_nowait())
        except queue.Empty:
            return

    def _beat(self) -> None:
        """A heartbeat once every member that still works has got on since the last."""
        working = [member for member in self._members.values() if not member.done]
        if all(member.beaten for member in working):
            for member in working:
                member.beaten = False
            self._told.heartbeat()

    def _errors(self) -> list[BaseException]:
        return [member.error for member in self._members.values() if member.error is not None]


def _together(results: list[IngestResult]) -> IngestResult:
    reasons = dict.fromkeys(result.reason for result in results)
    return IngestResult(
        commits=sum(result.commits for result in results),
        rows=sum(result.rows for result in results),
        dead_letters=sum(result.dead_letters for result in results),
        reason="; ".join(reasons) or "there is no topic to read",
    )
