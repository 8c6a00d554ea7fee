"""The loop: poll, submit, commit group offsets; and what happens when partitions come, go, are lost, or are fought over."""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from consumers.brokers.protocol import BrokerConsumer, Partitions
from consumers.errors import FatalError, OwnershipLost, within
from consumers.processing.context import Build, Context, Surroundings
from consumers.processing.positions import PositionStore
from consumers.processing.progress import Progress
from consumers.processing.strategies.protocol import Message, MessageRejected, Strategy
from consumers.processing.subscription import Subscription
from consumers.processing.takeover import Takeover
from consumers.types import Positions, Ranges, RecordBatch, TopicPartition

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_CONTESTS = 2
_ALONE_SECONDS = 10.0
_TELL_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends by itself: once caught up with the offsets seen at its start, or after some seconds.

    `stop_seconds` is how long what is in hand may take to be committed then.
    """

    until_caught_up: bool = False
    max_seconds: float | None = None
    stop_seconds: float = 8.0


class Processor:
    """One member of a consumer. Everything happens in the thread that calls `run`, but what a strategy does elsewhere."""

    def __init__(
        self,
        subscription: Subscription,
        broker: BrokerConsumer,
        store: PositionStore,
        build: Build,
        around: Surroundings | None = None,
        heartbeat: Callable[[], None] = lambda: None,
    ) -> None:
        """`heartbeat` is called after every turn that got on, or had nothing to get on with."""
        self._subscription = subscription
        self._broker = broker
        self._store = store
        self._build = build
        self._around = around or Surroundings()
        self._heartbeat = heartbeat
        self._takeover = Takeover(subscription, broker, store, self._around)
        self._strategy: Strategy[pa.RecordBatch] | None = None
        self._progress = Progress()
        self._held: deque[RecordBatch] = deque()
        self._contested = 0
        self._paused_since: float | None = None
        self._waits = False
        self._moved = False
        self._ending = False
        self._until_caught_up = False
        self._answered: float | None = None
        self._told = 0.0

    @property
    def positions(self) -> Positions:
        """The next offset to commit of each partition that is ours."""
        return dict(self._progress.safe)

    def run(self, stop: threading.Event, limits: Limits, abort: threading.Event | None = None) -> str:
        """Run until told to stop or a limit is reached; returns which. Raises `FatalError`, or what a callback raised.

        `abort` ends it without waiting for work in flight, which the next start reads again.
        """
        started = self._around.clock.monotonic()
        self._until_caught_up = limits.until_caught_up
        self.start()
        while abort is None or not abort.is_set():
            if (reason := self._reason_to_end(stop, limits, started)) is not None:
                self.finish(limits.stop_seconds)
                return reason
            self.step()
        return "aborted"

    def start(self) -> None:
        """Join."""
        self._broker.subscribe(self)

    def step(self) -> None:
        """One turn of the loop: at most one poll of the broker, and what is due in the strategy."""
        self._moved = False
        try:
            self._offer()
            self._poll()
            if self._strategy is not None:
                self._strategy.poll()
                if self._until_caught_up and not self._held and self._progress.all_read() and not self._progress.all_safe():
                    self._strategy.flush(_POLL_SECONDS)
            self._tell_again()
        except OwnershipLost as error:
            self._reclaim(error)
        if self._moved or self._progress.idle:
            self._heartbeat()

    def finish(self, seconds: float) -> None:
        """Commit what is in hand within some seconds, or leave it to the next start."""
        if self._strategy is None:
            return
        try:
            self._waits = True
            self._strategy.flush(seconds)
            self._strategy.poll()
        except OwnershipLost as error:
            log.warning("%s: %s; the next start reads it again", self._subscription.name, error)
            self._strategy.discard()
        finally:
            self._waits = False

    def end(self) -> None:
        """What is not committed stays so; partitions that are revoked from now on are just let go."""
        self._ending = True
        self._close_strategy()

    def assigned(self, partitions: Partitions) -> Positions:
        """Take partitions over. None at all is an answer too: the group has none for this member."""
        self._answered = self._around.clock.monotonic()
        if not partitions:
            return {}
        self._around.metrics.count("rebalances", tags={"kind": "assigned"})
        positions, goal = self._takeover.take(partitions)
        self._progress.begin(positions, goal)
        if self._strategy is None:
            self._strategy = self._built()
        # Whoever committed last may have died before it told the group.
        self._broker.commit(positions)
        self._told = self._around.clock.monotonic()
        self._around.metrics.gauge("assigned_partitions", len(self._progress.safe))
        return positions

    def revoked(self, partitions: Partitions) -> None:
        """Finish and commit within the time allowed, else forget; then let go."""
        self._around.metrics.count("rebalances", tags={"kind": "revoked"})
        if not self._ending and self._strategy is not None and partitions & self._progress.safe.keys():
            self._drain(self._strategy)
        self._let_go(partitions)

    def lost(self, partitions: Partitions) -> None:
        """Another member has them already: forget, let go."""
        self._around.metrics.count("rebalances", tags={"kind": "lost"})
        log.warning("%s: lost %s", self._subscription.name, ", ".join(map(str, sorted(partitions))))
        self._forget_unsafe(partitions)
        self._let_go(partitions)

    def _poll(self) -> None:
        began = self._around.clock.monotonic()
        batch = self._broker.poll(self._subscription.poll_records, _POLL_SECONDS)
        if batch is None:
            return
        metrics = self._around.metrics
        metrics.observe("poll_seconds", self._around.clock.monotonic() - began)
        metrics.count("batches_in")
        metrics.count("records_in", batch.records.num_rows)
        metrics.count("bytes_in", batch.nbytes)
        self._progress.polled(batch, _newest(batch))
        metrics.gauge("in_flight_bytes", self._progress.in_flight_bytes)
        self._held.append(batch)
        self._offer()

    def _offer(self) -> None:
        """Hand held batches on; where they are refused, pause, and resume once all are taken."""
        while self._held and self._strategy is not None:
            batch = self._held[0]
            try:
                self._strategy.submit(Message(batch.records, batch.ranges, (batch.records,)))
            except MessageRejected:
                self._around.metrics.count("rejections")
                self._pause()
                return
            self._held.popleft()
            self._moved = True
        self._resume()

    def _pause(self) -> None:
        if self._paused_since is None:
            self._broker.pause()
            self._paused_since = self._around.clock.monotonic()

    def _resume(self) -> None:
        if self._paused_since is not None:
            self._broker.resume()
            self._around.metrics.count("paused_seconds", self._around.clock.monotonic() - self._paused_since)
            self._paused_since = None

    def _committed(self, ranges: Ranges) -> None:
        """The strategy says that ranges are durable: group offsets follow."""
        moved = self._progress.committed(ranges)
        if not moved:
            return
        self._contested = 0
        self._moved = True
        self._takeover.require_topic()
        self._broker.commit(moved, self._waits)
        metrics, now = self._around.metrics, self._around.clock.time()
        metrics.count("commits")
        for tp, high in self._broker.high_watermarks(frozenset(moved)).items():
            metrics.gauge("lag", max(0, high - moved[tp]), _place(tp))
        if self._progress.newest_ms is not None:
            metrics.gauge("time_lag_seconds", max(0.0, now - self._progress.newest_ms / 1000))
        metrics.gauge("in_flight_bytes", self._progress.in_flight_bytes)

    def _tell_again(self) -> None:
        """The group, from time to time: a commit of its offsets that failed was only logged, and nothing new may follow."""
        now = self._around.clock.monotonic()
        if self._progress.safe and now - self._told >= _TELL_SECONDS:
            self._told = now
            self._takeover.require_unmoved(self._progress.safe)
            self._takeover.require_topic()
            self._broker.commit(self._progress.safe)

    def _built(self) -> Strategy[pa.RecordBatch]:
        strategy: Strategy[pa.RecordBatch] | None = self._build(Context(self._committed, self._around))
        if strategy is None:  # Types forbid it, but without them it would poll for ever.
            name = self._subscription.name
            raise FatalError(f"consumer {name}: `build` returned no strategy. Let it return the first one of the chain.")
        return strategy

    def _drain(self, strategy: Strategy[pa.RecordBatch]) -> None:
        """Commit what is in flight, with the group's coordinator too, before partitions go."""
        self._waits = True
        try:
            if not strategy.flush(self._subscription.revoke_seconds):
                log.warning("%s: revoked before the batch was committed; it is read again", self._subscription.name)
                self._forget_unsafe()
        except OwnershipLost as error:
            log.warning("%s: %s; the batch is read again", self._subscription.name, error)
            self._forget_unsafe()
        finally:
            self._waits = False

    def _reclaim(self, error: OwnershipLost) -> None:
        """Somebody committed for our partitions: forget, look where the store stands, take over again, seek."""
        name = self._subscription.name
        self._contested += 1
        if self._contested > _CONTESTS:
            raise FatalError(
                f"consumer {name}: another process keeps writing the same partitions ({within(error)}). This member stops "
                "and leaves them to it; nothing was lost or written twice. Look for a second deployment with the same consumer."
            ) from error
        log.warning("%s: %s; starting again from the committed positions", name, error)
        self._forget_unsafe()
        self._around.clock.sleep(self._around.random.uniform(0.0, 0.5))
        if self._progress.safe:
            self._broker.seek(self.assigned(frozenset(self._progress.safe)))

    def _forget_unsafe(self, leaving: Partitions = frozenset()) -> None:
        """Drop everything that is not committed; the partitions that stay are read again from their committed offsets."""
        if self._strategy is not None:
            self._strategy.discard()
        self._held.clear()
        self._progress.forget()
        self._around.metrics.gauge("in_flight_bytes", self._progress.in_flight_bytes)
        self._broker.seek({tp: offset for tp, offset in self._progress.safe.items() if tp not in leaving})

    def _let_go(self, partitions: Partitions) -> None:
        self._progress.release(partitions)
        self._held = deque(rest for batch in self._held if (rest := batch.without(partitions)).ranges)
        self._store.release(partitions)
        for tp in partitions:
            self._around.metrics.gauge("lag", math.nan, _place(tp))  # whoever has it now tells its lag
        self._around.metrics.gauge("assigned_partitions", len(self._progress.safe))
        self._around.metrics.gauge("in_flight_bytes", self._progress.in_flight_bytes)
        if not self._progress.safe:
            self._close_strategy()

    def _close_strategy(self) -> None:
        if self._strategy is not None:
            self._strategy.close()
            self._strategy = None

    def _reason_to_end(self, stop: threading.Event, limits: Limits, started: float) -> str | None:
        now = self._around.clock.monotonic()
        if stop.is_set():
            return "stopped"
        if limits.max_seconds is not None and now - started >= limits.max_seconds:
            return f"handed over after {now - started:.0f} s"
        if limits.until_caught_up and not self._held:
            if not self._progress.safe:
                # The group answers late while it waits for a member that was killed; what that one held then comes here.
                alone = self._answered is not None and now - self._answered > _ALONE_SECONDS
                return "no partitions were assigned" if alone else None
            if self._progress.all_safe():
                return "caught up"
        return None


def _newest(batch: RecordBatch) -> int | None:
    """The newest record's timestamp, in milliseconds since the epoch."""
    newest: int | None = pc.max(batch.records["timestamp"].cast(pa.int64())).as_py()
    return newest


def _place(tp: TopicPartition) -> dict[str, str]:
    return {"topic": tp.topic, "partition": str(tp.partition)}
