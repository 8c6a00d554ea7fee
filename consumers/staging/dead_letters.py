"""The dead-letter table: records that cannot become rows, whole, with the reason, each exactly once.

It is written before the staged commit that passes those offsets. Until then its rows are tentative. Whoever takes a partition
over first takes it over in the staged table, after which no older member can make its tentative rows final, and then here,
removing the rows at or past the position. From then on no older member can write here either.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import OwnershipLost
from consumers.staging.delta import commit, conflicts_are_lost_ownership, open_table, transactions, while_owned
from consumers.staging.files import write_file
from consumers.staging.local import local_dataset
from consumers.staging.past import condition, past
from consumers.staging.positions import epoch_id
from consumers.staging.schema import DEAD_LETTERS, filled
from consumers.types import Position, TopicPartition


class DeadLetterTable:
    """A consumer's dead letters, as one member of the group writes them."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self.consumer = consumer.name
        self.path = consumer.dead_letters
        self._clock = clock
        self._table = open_table(self.path, DEAD_LETTERS)

    def acquire(self, taken: Mapping[TopicPartition, Position], labels: Mapping[TopicPartition, str]) -> int:
        """Take partitions over and remove their tentative rows. Returns how many those were.

        `taken` holds the new epochs, and the positions at which the partitions stood. `labels` name the incarnation of each
        partition's log that those positions belong to: rows of any other are final.

        Raises `OwnershipLost` when a newer member was here already.
        """
        self._table.update_incremental()
        for tp in taken:
            if self._epoch(tp) > taken[tp].epoch:
                raise OwnershipLost(f"{tp}: a newer member holds the partition's dead letters")
        owner = transactions({epoch_id(self.consumer, tp): position.epoch for tp, position in taken.items()})
        stood = {tp: position.offset or 0 for tp, position in taken.items()}
        tentative = tentative_rows(self._table, stood, labels)
        if not tentative:
            commit(self._table, DEAD_LETTERS, [], [], owner)
            return 0
        with conflicts_are_lost_ownership():
            self._table.delete(condition(stood, labels), commit_properties=CommitProperties(app_transactions=owner))
        self._table.update_incremental()
        return tentative

    def append(self, rows: pa.Table, epochs: Mapping[TopicPartition, int]) -> int:
        """Commit `rows` (columns of `DEAD_LETTERS`) of partitions held in `epochs`. Returns the file's bytes.

        Raises `OwnershipLost`, with nothing committed, when one of them was taken over.
        """
        self._require(epochs)
        file = write_file(self.path, filled(rows, DEAD_LETTERS), None, self._clock)
        owner = transactions({epoch_id(self.consumer, tp): epoch for tp, epoch in epochs.items()})

        def attempt() -> int:
            self._require(epochs)
            return commit(self._table, DEAD_LETTERS, [], [file.action()], owner)

        while_owned(attempt)
        return file.size

    def epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The epoch of each partition in the newest commit."""
        self._table.update_incremental()
        return {tp: self._epoch(tp) for tp in partitions}

    def _require(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._table.update_incremental()
        if lost := [tp for tp, epoch in epochs.items() if self._epoch(tp) != epoch]:
            raise OwnershipLost(f"{lost[0]}: another member has taken over the partition's dead letters")

    def _epoch(self, tp: TopicPartition) -> int:
        return self._table.transaction_version(epoch_id(self.consumer, tp)) or 0


def tentative_rows(table: DeltaTable, positions: Mapping[TopicPartition, int], labels: Mapping[TopicPartition, str]) -> int:
    """How many rows of these partitions stand at or past their positions."""
    return int(local_dataset(table).count_rows(filter=past(positions, labels)))
