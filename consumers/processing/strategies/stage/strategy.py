"""Stage record batches into Delta: decode, buffer, and commit by count, bytes or age, on a thread of its own.

Polling costs Python time, decoding and writing hardly do, so the two overlap. What is in flight is bounded in bytes; past the
bound `submit` waits a little, then rejects.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from consumers.config import Consumer
from consumers.errors import OwnershipLost
from consumers.processing.context import Context
from consumers.processing.decoding import decoder_for
from consumers.processing.incarnation import Incarnation
from consumers.processing.strategies.protocol import Message, MessageRejected
from consumers.processing.strategies.stage.buffer import Buffer, shape
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.patience import Patience
from consumers.processing.strategies.stage.writer import TableWriter
from consumers.staging.failures import explained
from consumers.staging.log import StagedCommit
from consumers.types import TopicPartition

_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class _Batch:
    message: Message[pa.RecordBatch]
    generation: int


@dataclass(frozen=True, slots=True)
class _Flush:
    done: threading.Event

    @classmethod
    def done_already(cls) -> "_Flush":
        flush = cls(threading.Event())
        flush.done.set()
        return flush


class _Stop:
    pass


HighWatermarks = Callable[[frozenset[TopicPartition]], Mapping[TopicPartition, int]]


class Stage:
    """The strategy that ends in the staged table. Its public methods are called by the polling thread."""

    def __init__(
        self,
        consumer: Consumer,
        owner: Owner,
        context: Context,
        incarnation: Incarnation,
        high_watermarks: HighWatermarks,
        on_commit: Callable[[StagedCommit], None],
    ) -> None:
        """`owner` knows what is held. `on_commit` hears of every commit, after the engine has."""
        self._consumer = consumer
        self._owner = owner
        self._context = context
        self._incarnation = incarnation
        self._high_watermarks = high_watermarks
        self._on_commit = on_commit
        self._clock = context.around.clock
        self._decoder = decoder_for(consumer.config)
        self._writer = TableWriter(consumer, owner.member, self._clock)
        self._patience = Patience(consumer.config.batch, consumer.config.maintenance.files_per_window)
        self._room = max(consumer.config.batch.max_bytes // 4, 1)
        self._inbox: queue.SimpleQueue[_Batch | _Flush | _Stop] = queue.SimpleQueue()
        self._outbox: deque[StagedCommit] = deque()
        self._changed = threading.Condition()
        self._waiting = 0
        self._unflushed = False
        self._more = False
        self._flush = _Flush.done_already()
        self._generation = 0
        self._failure: BaseException | None = None
        self._high: Mapping[TopicPartition, int] = {}
        self._buffer = Buffer()
        self._buffer_generation = 0
        self._thread = threading.Thread(target=self._run, name=f"stage-{consumer.name}", daemon=True)
        self._thread.start()

    def submit(self, message: Message[pa.RecordBatch]) -> None:
        """Queue a batch for decoding; waits up to a second for room, then raises `MessageRejected`."""
        with self._changed:
            free = self._changed.wait_for(lambda: self._waiting < self._room or self._failure is not None, _PATIENCE)
            self._raise_failure()
            if not free:
                raise MessageRejected
            self._waiting += message.nbytes
        self._unflushed, self._more = True, message.more
        self._inbox.put(_Batch(message, self._generation))

    def poll(self) -> None:
        """Tell what was committed since the last call, in order; then raise what failed meanwhile."""
        self._high = self._high_watermarks(frozenset(self._owner.holds))
        self._tell()
        self._raise_failure()

    def flush(self, timeout: float) -> bool:
        """Commit everything submitted so far, and tell. False when that takes longer than `timeout` seconds; it then goes on."""
        self._high = self._high_watermarks(frozenset(self._owner.holds))
        if self._unflushed and not self._more:
            self._unflushed, self._flush = False, _Flush(threading.Event())
            self._inbox.put(self._flush)
        # With `more`, a step before has the rest, and hands it on once this returns.
        done = not self._more and self._flush.done.wait(timeout)
        self._tell()
        self._raise_failure()
        return done

    def discard(self) -> None:
        """Forget everything that no commit has taken, and a lost ownership. It must be submitted again."""
        with self._changed:
            self._generation += 1
            if isinstance(self._failure, OwnershipLost):
                self._failure = None
        self._unflushed, self._more, self._flush = False, False, _Flush.done_already()
        self._tell()

    def close(self) -> None:
        """Forget what is not committed, wait for a commit under way, and end the thread."""
        self._generation += 1
        if self._thread.is_alive():
            self._inbox.put(_Stop())
            self._thread.join()

    def _tell(self) -> None:
        while self._outbox:
            commit = self._outbox.popleft()
            self._measure(commit)
            self._context.commit(commit.ranges)
            self._on_commit(commit)

    def _measure(self, commit: StagedCommit) -> None:
        metrics = self._context.around.metrics
        metrics.observe("batch_records", commit.rows + commit.dead_letters)
        metrics.observe("batch_bytes", commit.bytes)
        metrics.observe("decode_seconds", commit.timings.decode)
        metrics.observe("flush_seconds", commit.timings.write)
        metrics.observe("commit_seconds", commit.timings.commit)
        if commit.dead_letters:
            metrics.count("dead_letters", commit.dead_letters)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while True:
            try:
                item = self._inbox.get(timeout=self._time_left())
            except queue.Empty:
                self._guarded(self._commit)
                continue
            if isinstance(item, _Stop):
                return
            if isinstance(item, _Flush):
                self._guarded(self._commit)
                item.done.set()
                continue
            self._guarded(lambda taken=item: self._take(taken))  # type: ignore[misc]
            with self._changed:
                self._waiting -= item.message.nbytes
                self._changed.notify_all()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run one step. A failure is kept for the polling thread; nothing more is done until that has dealt with it."""
        if self._buffer_generation != self._generation:
            self._buffer, self._buffer_generation = Buffer(), self._generation
        if self._failure is not None:
            return
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again on the polling thread
            with self._changed:
                self._failure = explained(error, self._consumer)
                self._buffer = Buffer()
                self._changed.notify_all()

    def _time_left(self) -> float | None:
        """Seconds until the buffer is due; None while it is empty, or ends in the middle of what was made of some records."""
        since = self._buffer.since
        if since is None or self._buffer.more or self._failure is not None:
            return None
        return max(0.0, since + self._patience.seconds - self._clock.monotonic())

    def _take(self, item: _Batch) -> None:
        if item.generation != self._buffer_generation:
            return
        began = self._clock.monotonic()
        config = self._consumer.config
        labels = {tp: hold.label for tp, hold in self._owner.holds.items()}
        now_ms = int(self._clock.time() * 1000)
        shaped = shape(item.message, self._decoder, config.window, labels, now_ms, config.keep_raw)
        self._buffer.decode_seconds += self._clock.monotonic() - began
        self._buffer.add(shaped, began, item.message.more)
        full = self._buffer.records >= config.batch.max_records or self._buffer.nbytes >= config.batch.max_bytes
        if (full and not self._buffer.more) or self._time_left() == 0.0:
            self._commit()

    def _commit(self) -> None:
        buffer, self._buffer = self._buffer, Buffer()
        with self._changed:
            # Decoding takes a while; what was discarded meanwhile must not be committed under holds that came after.
            stale = self._buffer_generation != self._generation
            holds, high = self._owner.holds, self._high
        if buffer.ranges and not stale:
            if strange := sorted(buffer.ranges.keys() - holds.keys()):
                raise OwnershipLost(f"{', '.join(map(str, strange))}: this member does not hold them (any longer)")
            for topic_id in {holds[tp].topic_id for tp in buffer.ranges}:
                self._incarnation.require(topic_id)
            done = self._writer.write(buffer, holds, high)
            self._patience.wrote(done.windows, self._writer.staged.files_by_window)
            self._outbox.append(done)
