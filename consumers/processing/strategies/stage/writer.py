"""Turns what was buffered into commits of a consumer's two tables."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.processing.invalid_limits import InvalidGuard
from consumers.processing.strategies.stage.buffer import Buffer
from consumers.processing.strategies.stage.owner import Hold
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.files import NewFile, write_file
from consumers.staging.log import StagedCommit, Timings, WindowChange
from consumers.staging.schema import WINDOW, schema_id
from consumers.staging.staged import StagedTable
from consumers.staging.windows import split
from consumers.types import TopicPartition


class TableWriter:
    """Turns a buffer into commits of both tables."""

    def __init__(self, consumer: Consumer, member: str, clock: Clock) -> None:
        self.consumer = consumer
        self.member = member
        self.clock = clock
        self.staged = StagedTable(consumer, clock)
        self.dead_letters = DeadLetterTable(consumer, clock)
        self._guard = InvalidGuard(consumer.config.invalid_records)
        self._last_commit = 0.0

    def write(self, buffer: Buffer, holds: Mapping[TopicPartition, Hold], high: Mapping[TopicPartition, int]) -> StagedCommit:
        """Make a buffer durable: dead letters first, then files and positions in one commit.

        Raises `OwnershipLost`, with no row or position of the buffer committed, and `InvalidLimit` before anything is written.
        """
        rejects = buffer.rejects()
        self._check_limits(buffer, rejects)
        began = self.clock.monotonic()
        files = self._write_files(buffer)
        epochs = {tp: holds[tp].epoch for tp in buffer.ranges}
        if rejects is not None:
            self.staged.require(buffer.ranges, epochs)
            self.dead_letters.append(rejects, _only(epochs, rejects))
        written = self.clock.monotonic()
        batch = self._describe(buffer, files, rejects, high)
        since = began if buffer.since is None else buffer.since
        # A commit cannot say how long it takes itself, so the log has what the one before took.
        batch = replace(batch, timings=Timings(began - since, buffer.decode_seconds, written - began, self._last_commit))
        done = self.staged.commit(files, batch, epochs)
        self._last_commit = self.clock.monotonic() - written
        return replace(done, timings=replace(batch.timings, commit=self._last_commit))

    def _write_files(self, buffer: Buffer) -> list[NewFile]:
        if not buffer.rows:
            return []
        table = buffer.table()
        keys = table[WINDOW].combine_chunks()
        rows = table.drop_columns([WINDOW])
        return [write_file(self.staged.path, part, window, self.clock) for window, part in split(rows, keys)]

    def _describe(
        self, buffer: Buffer, files: list[NewFile], rejects: pa.Table | None, high: Mapping[TopicPartition, int]
    ) -> StagedCommit:
        return StagedCommit(
            commit_id=uuid.uuid4().hex,
            kind="batch",
            consumer=self.consumer.name,
            member=self.member,
            ranges=dict(buffer.ranges),
            rows=buffer.rows,
            bytes=sum(file.size for file in files),
            dead_letters=0 if rejects is None else rejects.num_rows,
            skipped=sum(len(r) for r in buffer.ranges.values()) - buffer.records,
            windows={f.window: WindowChange(f.rows, f.size, 1) for f in files if f.window is not None},
            high={tp: high[tp] for tp in buffer.ranges if tp in high},
            times=dict(buffer.times),
            schema_id=schema_id(self.consumer.config.columns),
        )

    def _check_limits(self, buffer: Buffer, rejects: pa.Table | None) -> None:
        if rejects is not None:
            topic = self.consumer.config.topic
            self._guard.check_share(topic, buffer.records, rejects.num_rows, _reasons(rejects))
            self._guard.check_bytes(topic, rejects.nbytes)
        for shaped in buffer.shaped:
            for tp, step in shaped.ranges.items():
                good, bad = _offsets(shaped.rows, tp), _offsets(shaped.rejects, tp)
                self._guard.check_run(tp, step, good, bad, _reasons(shaped.rejects))


def _only(epochs: Mapping[TopicPartition, int], rejects: pa.Table) -> dict[TopicPartition, int]:
    present = set(rejects["_partition"].unique().to_pylist())
    return {tp: epoch for tp, epoch in epochs.items() if tp.partition in present}


def _reasons(rejects: pa.Table | None) -> Iterator[str]:
    if rejects is not None:
        yield from rejects["_reason"].to_pylist()


def _offsets(rows: pa.Table | None, tp: TopicPartition) -> np.ndarray:
    """The offsets that `rows` has of a partition, ascending."""
    if rows is None:
        return np.empty(0, np.int64)
    found: np.ndarray = rows["_offset"].filter(pc.equal(rows["_partition"], tp.partition)).to_numpy()
    return found
