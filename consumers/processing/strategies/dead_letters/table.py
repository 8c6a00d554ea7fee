"""Dead letters in a Delta table of their own, for consumers that do not stage: each record once.

A letter is written before the position passes its record, so after a crash it is offered again. Per (topic id, partition) an
application transaction says up to which offset letters were ever written. It moves in the commit that adds them, so two writers
of the same partition cannot pass each other unseen: the later one fails, looks again, and leaves out what is there. Nothing is
ever removed: a writer that lost its partition without knowing can add a letter early, and can take none away. So
a record that a changed program takes for valid after a crash may be here and in the output.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from consumers.clock import Clock
from consumers.errors import OwnershipLost, StorageError, within
from consumers.processing.strategies.dead_letters.letters import Durable
from consumers.staging.delta import commit, open_table, transactions
from consumers.staging.files import write_file
from consumers.staging.local import local_dataset, text
from consumers.staging.schema import DEAD_LETTERS, filled

_ATTEMPTS = 10
_GROUP_BYTES = 8 * 1024 * 1024

Group = list[pa.RecordBatch]


class TableSink:
    """Appends dead letters to the table at `path`, made when there is none (columns of `DEAD_LETTERS`, no windows).

    `consumer` names the reader whose letters these are; several may share a table. `topic_id` is the id of the topic as it was
    assigned. Letters of `seconds` go into one commit, which the polling thread writes.
    """

    def __init__(self, path: Path, consumer: str, topic_id: str, clock: Clock, seconds: float = 1.0) -> None:
        self._path = path
        self._consumer = consumer
        self._topic_id = topic_id
        self._clock = clock
        self._seconds = seconds
        self._group: Group = []
        self._since = 0.0
        with _explained(path):
            self._table = open_table(path, DEAD_LETTERS)

    def submit(self, letters: pa.RecordBatch) -> Durable:
        """Take letters into the next commit."""
        if not self._group:
            self._since = self._clock.monotonic()
        group = self._group
        group.append(letters)
        # Writing puts a new group in the place of the one that was written.
        return lambda: self._group is not group

    def poll(self) -> None:
        """Commit, if the first letter has waited long enough or there are many. Raises `StorageError`."""
        waited = self._clock.monotonic() - self._since
        if self._group and (waited >= self._seconds or sum(part.nbytes for part in self._group) >= _GROUP_BYTES):
            self._write()

    def flush(self, timeout: float) -> bool:
        """Commit what there is, however long that takes."""
        if self._group:
            self._write()
        return True

    def discard(self) -> None:
        """Forget what was not committed."""
        self._group = []

    def close(self) -> None:
        """Forget what was not committed."""
        self.discard()

    def _write(self) -> None:
        letters = pa.Table.from_batches(self._group)
        with _explained(self._path):
            for _ in range(_ATTEMPTS):
                try:
                    self._commit(letters)
                except OwnershipLost:
                    continue
                self._group = []
                return
        raise StorageError(
            f"{self._path}: other writers of the same dead letters committed first, {_ATTEMPTS} times in a row. Nothing past "
            "them was committed. Look for a second deployment with the same consumer, and start again."
        )

    def _commit(self, letters: pa.Table) -> None:
        """One attempt, from the newest snapshot. Raises `OwnershipLost` when another writer of these partitions was faster."""
        self._table.update_incremental()
        marks: dict[str, int] = {}
        fresh: list[pa.Table] = []
        for topic, partition in sorted(
            {(r["topic"], r["partition"]) for r in letters.select(["topic", "partition"]).to_pylist()}
        ):
            mine = letters.filter((pc.field("topic") == topic) & (pc.field("partition") == partition))
            mark_id = f"{self._consumer}/{topic}/{self._topic_id}/{partition}/letters"
            mark = self._table.transaction_version(mark_id) or 0
            fresh.append(self._absent(mine, topic, partition, mark))
            marks[mark_id] = max(mark, pc.max(mine["offset"]).as_py() + 1)
        rows = pa.concat_tables(fresh)
        if not rows.num_rows:
            return
        file = write_file(self._path, self._shaped(rows), None, self._clock)
        commit(self._table, DEAD_LETTERS, [], [file.action()], transactions(marks))

    def _absent(self, letters: pa.Table, topic: str, partition: int, mark: int) -> pa.Table:
        """Letters of one partition that are not in the table.

        The same offset is not enough: a log that was cut short uses offsets again, and then it is another record.
        """
        if pc.min(letters["offset"]).as_py() >= mark:
            return letters
        there = local_dataset(self._table).to_table(
            columns=["_offset", "_timestamp", "_value"],
            filter=(text("_topic") == topic)
            & (text("_topic_id") == self._topic_id)
            & (pc.field("_partition") == partition)
            & pc.field("_offset").isin(letters["offset"].combine_chunks()),
        )
        known = {_identity(row, "_") for row in there.to_pylist()}
        return letters.filter(pa.array([_identity(row, "") not in known for row in letters.to_pylist()], pa.bool_()))

    def _shaped(self, letters: pa.Table) -> pa.Table:
        """Letters as rows of the table."""
        count = letters.num_rows
        now_us = int(self._clock.time() * 1_000_000)
        columns = {
            "_topic_id": pa.array([self._topic_id] * count, pa.string()),
            "_window": pa.nulls(count, pa.string()),
            "_rejected_at": pa.array([now_us] * count, DEAD_LETTERS.field("_rejected_at").type),
        }
        columns |= {f"_{name}": letters[name] for name in letters.column_names}
        return filled(pa.table(columns), DEAD_LETTERS)


def _identity(row: dict[str, Any], prefix: str) -> tuple[object, ...]:
    return row[f"{prefix}offset"], row[f"{prefix}timestamp"], row[f"{prefix}value"]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Storage failures in an operator's words."""
    try:
        yield
    except (OSError, pa.ArrowException, DeltaError) as error:
        raise StorageError(
            f"dead letters could not be written to {path}: {within(error)}. "
            "Nothing from the first of them on was committed and nothing "
            "is lost; mend the storage (space, rights, reachability) and start again."
        ) from error
