"""Windows built again beside the table: `<staged>__shadow_<id>` holds what they would be, and the table is not touched.

Unlike a rebuilt window, a shadow puts every record where it belongs by today's definition, be that another window, and has
today's columns, also where the table's cannot be changed in place.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import ConfigError, StorageError
from consumers.processing.backfill.locate import at_or_past, unresolved
from consumers.processing.backfill.window import Backfill, Made
from consumers.staging import positions as ids
from consumers.staging.delta import commit, open_table, transactions
from consumers.staging.files import write_file
from consumers.staging.local import local_dataset, text, windows_of
from consumers.staging.places import by_life, in_order
from consumers.staging.rewrite import Snapshot
from consumers.staging.schema import DEAD_LETTERS, WINDOW, filled, staged_schema
from consumers.staging.windows import split
from consumers.types import Positions, TopicPartition

_VERSION = "shadow/version"
_WHOLE = "shadow/whole"
_DONE = "shadow/window/"


@dataclass(frozen=True)
class Shadow:
    """A shadow of a consumer's table. Its positions are those up to which it was built.

    Raises `ConfigError` for a consumer of several topics.
    """

    consumer: Consumer
    id: str

    def __post_init__(self) -> None:
        config = self.consumer.config
        if config.only_topic is None:
            raise ConfigError(
                f"consumer {self.consumer.name} reads {config.reads}, and shadows are of tables of one topic. Nothing was "
                "written. Build windows again in place with a backfill; where that does not do, a new name has a new table."
            )

    @property
    def tables(self) -> Consumer:
        """The consumer with the shadow's tables for its own."""
        places = {name: self._beside(path) for name, path in self._own.items()}
        return self.consumer.model_copy(update=places)

    def open(self) -> DeltaTable:
        """Its rows. Raises `StorageError` where there is no such shadow."""
        path = self.tables.staged
        if not DeltaTable.is_deltatable(str(path)):
            raise StorageError(f"consumer {self.consumer.name} has no shadow '{self.id}' (no table {path}). Nothing was changed.")
        return DeltaTable(path)

    def positions(self) -> dict[TopicPartition, int]:
        """Rows of the consumer's table at or past these are no part of it."""
        return ids.all_positions(self.open(), self.consumer.name, [self.consumer.config.topic])

    def version(self) -> int:
        """The version of the consumer's table that it was begun from."""
        found: int | None = self.open().transaction_version(_VERSION)
        return -1 if found is None else found

    @property
    def whole(self) -> bool:
        """Whether it is of every window of the table."""
        return bool(self.open().transaction_version(_WHOLE))

    def done(self, window: str) -> bool:
        """Whether the records of this window of the table are in it."""
        return self.open().transaction_version(_DONE + window) is not None

    def rejects(self) -> pa.Table:
        """Rows of the table that cannot be rows any more, as dead letters."""
        path = self.tables.dead_letters
        if not DeltaTable.is_deltatable(str(path)):
            return DEAD_LETTERS.empty_table()
        rows = filled(local_dataset(DeltaTable(path)).to_table(), DEAD_LETTERS)
        # A killed run may have written some twice.
        firsts = [life.rows[np.unique(life.offsets, return_index=True)[1]] for life in by_life(rows)]
        return rows.take(pa.array(np.concatenate(firsts))) if firsts else rows

    def drop(self) -> None:
        """Remove it."""
        for path in (self.tables.staged, self.tables.dead_letters):
            shutil.rmtree(path, ignore_errors=True)

    @property
    def _own(self) -> dict[str, Path]:
        return {"staged": self.consumer.staged, "dead_letters": self.consumer.dead_letters}

    def _beside(self, path: Path) -> Path:
        return path.with_name(f"{path.name}__shadow_{self.id}")


def cast_shadow(shadow: Shadow, backfill: Backfill, clock: Clock, first: str = "", last: str = "") -> Iterator[tuple[str, Made]]:
    """Build the windows `first` to `last` (default: all) into a shadow, one after the other; goes on where it was interrupted.

    Gives every window that was built, and what was made of it. Raises `DataLoss` like a rebuilt window.
    """
    table = DeltaTable(shadow.consumer.staged)
    windows = windows_of(table)
    chosen = [window for window in windows if (not first or window >= first) and (not last or window <= last)]
    positions = _begin(shadow, table, whole=chosen == windows)
    for window in chosen:
        if not shadow.done(window):
            rows = rows_of(table, window)
            below = rows.filter(pa.array(~at_or_past(table, shadow.consumer, rows, positions)))
            letters = unresolved(shadow.consumer, positions, text(WINDOW) == window)
            made = backfill.reshape(Snapshot(window, below, positions), letters)
            _add(shadow, window, made, clock)
            yield window, made
    if chosen == windows and not shadow.done(""):
        others = pc.field(WINDOW).is_null() | ~text(WINDOW).isin(windows)
        letters = unresolved(shadow.consumer, positions, others)
        made = backfill.reshape(Snapshot("", rows_of(table, ""), positions), letters)
        _add(shadow, "", made, clock)


def rows_of(table: DeltaTable, window: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A window's rows: these columns, or all of the table's own."""
    return local_dataset(table, window).to_table(columns=list(columns) if columns else None)


def _begin(shadow: Shadow, table: DeltaTable, whole: bool) -> Positions:
    """The shadow's positions, those of now if it is only begun."""
    consumer = shadow.consumer
    schema = staged_schema(consumer.config.columns, consumer.config.keep_raw)
    beside = open_table(shadow.tables.staged, schema, [WINDOW])
    if beside.transaction_version(_VERSION) is None:
        now = ids.all_positions(table, consumer.name, [consumer.config.topic])
        marks = {ids.position_id(consumer.name, tp): offset for tp, offset in now.items()}
        commit(beside, schema, [WINDOW], [], transactions(marks | {_VERSION: table.version(), _WHOLE: int(whole)}))
    return shadow.positions()


def _add(shadow: Shadow, window: str, made: Made, clock: Clock) -> None:
    """Dead letters first: those of a window that is not marked as done are written again, and read as one."""
    schema = staged_schema(shadow.consumer.config.columns, shadow.consumer.config.keep_raw)
    if made.rejects.num_rows:
        letters = open_table(shadow.tables.dead_letters, DEAD_LETTERS)
        file = write_file(shadow.tables.dead_letters, filled(made.rejects, DEAD_LETTERS), None, clock)
        commit(letters, DEAD_LETTERS, [], [file.action()], [])
    rows = in_order(made.rows)
    parts = split(rows.drop_columns([WINDOW]), rows[WINDOW].combine_chunks()) if rows.num_rows else ()
    files = [write_file(shadow.tables.staged, part, key, clock).action() for key, part in parts]
    commit(shadow.open(), schema, [WINDOW], files, transactions({_DONE + window: 1}))
