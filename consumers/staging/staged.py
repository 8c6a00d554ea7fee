"""The staged table: a batch's files, its positions and its description land in one Delta commit, by compare-and-set.

Ownership is a number. Whoever is given a partition commits a new *epoch* for it first, rewriting its position as it is. From
then on a process of an older epoch can commit nothing for that partition: either its snapshot shows the newer epoch, or it
is older than the takeover, and Delta refuses two commits of the same application transaction. So a zombie cannot duplicate or
lose a row, and no lock service is needed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import OwnershipLost
from consumers.staging import positions as ids
from consumers.staging.columns import require_types
from consumers.staging.delta import commit, delete, open_table, transactions, while_owned
from consumers.staging.files import NewFile
from consumers.staging.log import StagedCommit, WindowChange
from consumers.staging.past import condition, rows_past
from consumers.staging.restore import Restored, RestoreWatch, restored
from consumers.staging.schema import WINDOW, staged_schema
from consumers.types import Position, Ranges, TopicPartition, topic_hash


class StagedTable:
    """A consumer's staged table, as one member of the group writes it."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self.consumer = consumer.name
        self._definition = consumer
        self.path = consumer.staged
        self.schema = staged_schema(consumer.config.columns, consumer.config.keep_raw)
        self._clock = clock
        self._table = open_table(self.path, self.schema, [WINDOW], consumer)
        self._watch = RestoreWatch()

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Where each partition stands in the newest commit."""
        self._table.update_incremental()
        return {tp: ids.position(self._table, self.consumer, tp) for tp in partitions}

    def known_topic(self, topic: str) -> int | None:
        """The hash of the topic id that the loaded snapshot's positions belong to."""
        return ids.known_topic(self._table, self.consumer, topic)

    def files_by_window(self) -> Counter[str]:
        """How many files each window has in the loaded snapshot."""
        return Counter(str(window) for window in pa.table(self._table.get_add_actions(flatten=True))[f"partition.{WINDOW}"])

    def restored(self) -> Restored | None:
        """What follows from a RESTORE that no move has followed yet, for the loaded snapshot; None where there is none."""
        found = self._watch.look(self._table)
        return None if found is None else restored(self._table, self.consumer, found)

    def acquire(
        self,
        seen: Mapping[TopicPartition, Position],
        takeover: StagedCommit,
        cut: frozenset[TopicPartition],
        other_epochs: Mapping[TopicPartition, int],
    ) -> tuple[dict[TopicPartition, Position], StagedCommit]:
        """Take partitions over at `takeover.starts`, provided that they still stand as `seen`.

        The new epochs are past those of `other_epochs`, too: the dead-letter table's, which is ahead where only the staged table
        was restored to an older version. Returns the new positions, and `takeover` with its version.

        Raises `OwnershipLost` when one of them moved since.
        """
        self._require(seen)
        takeover = replace(takeover, looked=self._watch.clean)
        epochs = {tp: max(then.epoch, other_epochs.get(tp, 0)) + 1 for tp, then in seen.items()}
        taken = {
            tp: Position(start, epochs[tp], epochs[tp] if tp in cut else seen[tp].cut) for tp, start in takeover.starts.items()
        }
        versions: dict[str, int] = {}
        for tp, new in taken.items():
            versions[ids.position_id(self.consumer, tp)] = takeover.starts[tp]
            versions[ids.epoch_id(self.consumer, tp)] = new.epoch
            if tp in cut:
                versions[ids.cut_id(self.consumer, tp)] = new.cut
        topics = [
            ids.topic_transaction(self.consumer, topic, topic_id)
            for topic, topic_id in takeover.topic_ids.items()
            if self.known_topic(topic) != topic_hash(topic_id) and (topic_id or self.known_topic(topic) is None)
        ]
        version = commit(self._table, self.schema, [WINDOW], [], transactions(versions) + topics, takeover.to_json())
        return taken, self._dated(takeover, version)

    def move(
        self,
        seen: Mapping[TopicPartition, Position],
        move: StagedCommit,
        labels: Mapping[TopicPartition, str],
        other_epochs: Mapping[TopicPartition, int],
    ) -> tuple[dict[TopicPartition, Position], StagedCommit]:
        """Set partitions to `move.starts` in new epochs, provided that they still stand as `seen`.

        Rows at or past a start that is no later go in the same commit, since they are read again; `labels` name the incarnation
        of each partition's log that they belong to. Returns the new positions, and `move` with what it removed (whose windows
        are added to its own) and its version.

        Raises `OwnershipLost`, with nothing changed, when a partition moved since, or rows of these offsets are being rewritten.
        """
        self._require(seen)
        epochs = {tp: max(then.epoch, other_epochs.get(tp, 0)) + 1 for tp, then in seen.items()}
        taken = {tp: Position(start, epochs[tp], seen[tp].cut) for tp, start in move.starts.items()}
        rewrites = ids.rewrites_id(self.consumer)
        versions = {rewrites: (self._table.transaction_version(rewrites) or 0) + 1}
        for tp, new in taken.items():
            versions |= {ids.position_id(self.consumer, tp): move.starts[tp], ids.epoch_id(self.consumer, tp): new.epoch}
        back = {tp: start for tp, start in move.starts.items() if start <= (seen[tp].offset or 0)}
        gone = rows_past(self._table, back, labels)
        windows = {window: WindowChange(0, 0, 0) for window in sorted({*move.windows, *gone})}
        move = replace(move, removed=sum(gone.values()), windows=windows)
        if gone:
            version = delete(self._table, condition(back, labels), transactions(versions), move.to_json())
        else:
            version = commit(self._table, self.schema, [WINDOW], [], transactions(versions), move.to_json())
        return taken, self._dated(move, version)

    def commit(self, files: Sequence[NewFile], batch: StagedCommit, epochs: Mapping[TopicPartition, int]) -> StagedCommit:
        """Commit `files` and move the positions from the start to the end of `batch.ranges`. Returns it with its version.

        Raises, with nothing committed, `OwnershipLost` when a position or an epoch is not what the batch started from, and
        `StorageError` when a column has another type by now.
        """
        moved = {ids.position_id(self.consumer, tp): step.end for tp, step in batch.ranges.items()}
        actions = [file.action() for file in files]

        def attempt() -> int:
            self.require(batch.ranges, epochs)
            require_types(self._table, self.schema, self._definition)
            return commit(self._table, self.schema, [WINDOW], actions, transactions(moved), batch.to_json())

        version = while_owned(attempt)
        self._watch.committed(version)
        return self._dated(batch, version)

    def require(self, ranges: Ranges, epochs: Mapping[TopicPartition, int]) -> None:
        """Raise `OwnershipLost` unless the newest commit stands at the starts of `ranges`, in these epochs, and the table was not
        restored to an older version.

        Dead letters are appended only after this has passed: a member that lags behind its own commit (it read again what was
        committed meanwhile) still holds the epoch, so nothing else would keep it from appending them a second time.
        """
        self._table.update_incremental()
        if (restore := self._watch.look(self._table)) is not None:
            raise OwnershipLost(f"the table was restored to version {restore.target}: the positions have to follow")
        for tp, step in ranges.items():
            now = ids.position(self._table, self.consumer, tp)
            if (now.offset, now.epoch) != (step.start, epochs[tp]):
                raise OwnershipLost(
                    f"{tp}: the table stands at offset {now.offset} in epoch {now.epoch}, this member at {step.start} in epoch "
                    f"{epochs[tp]}: another writer has taken the partition over"
                )

    def _dated(self, commit_: StagedCommit, version: int) -> StagedCommit:
        return replace(commit_, version=version, committed_at_ms=int(self._clock.time() * 1000))

    def _require(self, seen: Mapping[TopicPartition, Position]) -> None:
        for tp, then in self.positions(seen).items():
            if then != seen[tp]:
                raise OwnershipLost(f"{tp}: another writer moved the position while it was being taken over")
