"""Replacing what a window holds, and adding rows that were dead letters: commits that change rows and leave positions alone.

All of them carry the application transaction `<consumer>/rewrites`, so of two that started from one snapshot Delta takes one; the
other starts again. They touch only offsets below the positions of their snapshot, and ingestion adds only offsets from there on,
so the two never meet.
"""

import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import StorageError
from consumers.staging import positions as ids
from consumers.staging.columns import fit_columns
from consumers.staging.delta import Conflict, commit, open_table, transactions
from consumers.staging.files import write_file
from consumers.staging.local import local_dataset
from consumers.staging.log import StagedCommit, WindowChange
from consumers.staging.mend import mend
from consumers.staging.places import Mask, absent_from, by_life, distinct, in_order, present, ranges_of
from consumers.staging.resolve import Resolver
from consumers.staging.schema import DEAD_LETTERS, PLACE, WINDOW, filled, schema_id, staged_schema
from consumers.staging.turns import rewriting
from consumers.staging.windows import split
from consumers.types import Positions, Ranges

log = logging.getLogger(__name__)

_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A window as it is now: its `rows` (staged schema), and the next offset to read of each partition."""

    window: str
    rows: pa.Table
    positions: Positions


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a window is to be: all of its `rows` (staged schema), and the records that cannot become rows (`DEAD_LETTERS`).

    `rejects` may name records that are dead letters already; those are not written again. `ranges` are the offsets that were read
    for it, `lost` those that could not be read any more. `by` and `why` say who wanted it.
    """

    rows: pa.Table
    rejects: pa.Table | None
    ranges: Ranges
    lost: Ranges
    by: str
    why: str


class Rewriter:
    """Changes rows of a consumer's tables beside ingestion. One thread's own."""

    def __init__(self, consumer: Consumer, clock: Clock, code_version: str | None = None, member: str = "") -> None:
        """`code_version` is what dead letters that become rows are marked with; by default the id of the schema.

        `member` names this process in the table's log.
        """
        self._member = member
        self.consumer = consumer
        self.schema = staged_schema(consumer.config.columns, consumer.config.keep_raw)
        self.schema_id = schema_id(consumer.config.columns)
        self._code_version = code_version or self.schema_id
        self._clock = clock
        self._table = open_table(consumer.staged, self.schema, [WINDOW], consumer)
        self._resolver = Resolver(consumer, clock)
        self._mended = False

    def rewrite(self, window: str, make: Callable[[Snapshot], Replacement]) -> StagedCommit | None:
        """Give a window the rows that `make` returns for what it holds now, in one commit; None where it holds them already.

        `make` is called again when somebody else changed the window in between. Raises `StorageError`, with nothing changed, for
        rows of another window, at or past a position, twice of one record, or of a record that has a row in another window.
        """
        self._mend()
        made: list[tuple[Snapshot, list[str], Replacement]] = []

        def attempt() -> StagedCommit | None:
            self._table.update_incremental()
            # What a definition that came meanwhile has added would be missing from the rows.
            fit_columns(self._table, self.schema, self.consumer)
            files = sorted(self._table.file_uris(file_pruning_predicate=[(WINDOW, "=", window)]))
            if not made or made[-1][1] != files or self._moved_back(made[-1][0].positions):
                now = self._snapshot(window)
                made.append((now, files, make(now)))
            before, _, wanted = made[-1]
            return self._replace(before, wanted)

        return self._persistently(attempt)

    def replay(self, rows: pa.Table, by: str, why: str) -> tuple[StagedCommit | None, pa.Table]:
        """Add those of `rows` (staged schema) that are final and not staged yet, in one commit; None where there is none.

        Returns them, too. Final is what `judge` says. The dead letters of these records are not marked here: `mark` them
        afterwards.
        """
        self._mend()
        rows = filled(rows, self.schema)
        new = rows

        def attempt() -> StagedCommit | None:
            nonlocal new
            self._table.update_incremental()
            new = rows.filter(pa.array(self._final(rows) & ~present(self._table, rows)))
            if not new.num_rows:
                return None
            change = replace(self._change("replay", by, why), ranges=ranges_of(new), resolved=new.num_rows)
            return self._commit(change, new, None)

        return self._persistently(attempt), new

    def judge(self, rows: pa.Table) -> tuple[Mask, Mask]:
        """For each of some records whether it is final, and whether it has a staged row.

        Final is what stands below its partition's position, in the incarnation of the topic that this position belongs to.
        """
        self._table.update_incremental()
        return self._final(rows), present(self._table, rows)

    def mark(self, rows: pa.Table, failed: pa.Table | None) -> int:
        """Mark the dead letters of these records that are rows by now; those of `failed` (with `_reason`) were tried in vain."""
        return self._resolver.mark(rows, failed, self._code_version)

    def _mend(self) -> None:
        """Once in a life, and again after a failure: others may have been killed between two steps."""
        if not self._mended:
            mend(self.consumer, self._clock)
            self._mended = True

    def _persistently(self, attempt: Callable[[], StagedCommit | None]) -> StagedCommit | None:
        for number in range(_ATTEMPTS):
            try:
                with rewriting(self.consumer.staged):
                    return attempt()
            except Conflict as error:
                log.info("%s: starting again (%d): %s", self.consumer.name, number + 1, error)
                self._clock.sleep(random.uniform(0, min(2.0, 0.05 * 2**number)))
        raise StorageError(
            f"consumer {self.consumer.name}: others changed {self.consumer.staged} first, {_ATTEMPTS} times in a row. Nothing "
            "was written. End the other rewrites and replays of this consumer, or wait for them, and try again."
        )

    def _snapshot(self, window: str) -> Snapshot:
        rows = local_dataset(self._table, window).to_table(columns=self.schema.names)
        rows = filled(rows, self.schema)
        topics = {*self.consumer.config.topics_among(tuple), *rows["_topic"].unique().to_pylist()}
        return Snapshot(window, rows, ids.all_positions(self._table, self.consumer.name, topics))

    def _moved_back(self, then: Positions) -> bool:
        now = {tp: ids.position(self._table, self.consumer.name, tp).offset for tp in then}
        return any((now[tp] or 0) < offset for tp, offset in then.items())

    def _replace(self, before: Snapshot, wanted: Replacement) -> StagedCommit | None:
        rows = in_order(filled(wanted.rows, self.schema))
        added = rows.filter(pa.array(absent_from(before.rows, rows)))
        self._require(before.window, rows, added, wanted.rejects)
        rejects, were_rows = self._new_rejects(before, wanted.rejects)
        if not rejects.num_rows and rows.equals(in_order(before.rows)):
            return None
        gone = before.rows.num_rows - (rows.num_rows - added.num_rows)
        change = replace(
            self._change("rewrite", wanted.by, wanted.why),
            ranges=dict(wanted.ranges),
            lost=dict(wanted.lost),
            removed=before.rows.num_rows,
            dead_letters=rejects.num_rows,
            skipped=gone - were_rows,
            resolved=int(self._resolver.unresolved(added).sum()),
        )
        done = self._commit_with(rejects, change, rows, before.window)
        if change.resolved:
            self._resolver.mark(added, None, self._code_version)
        return done

    def _commit_with(self, rejects: pa.Table, change: StagedCommit, rows: pa.Table, window: str) -> StagedCommit:
        """Dead letters first: until the commit is in the staged log, they wait for it and count for nothing."""
        self._mended = False
        if rejects.num_rows:
            self._resolver.append(rejects, change.commit_id)
        try:
            done = self._commit(change, rows, window)
        except Conflict:
            if rejects.num_rows:
                self._resolver.withdraw([change.commit_id])
            raise
        if rejects.num_rows:
            self._resolver.conclude([change.commit_id])
        self._mended = True
        return done

    def _new_rejects(self, before: Snapshot, rejects: pa.Table | None) -> tuple[pa.Table, int]:
        """The rejects that are to be written, and how many of them were rows. What waits as a dead letter already is not written.

        A record that has a row is not waiting, whatever its dead letter says: somebody may be about to mark that one.
        """
        if rejects is None:
            return DEAD_LETTERS.empty_table(), 0
        were_rows = ~absent_from(before.rows, rejects)
        return rejects.filter(pa.array(were_rows | ~self._resolver.unresolved(rejects))), int(were_rows.sum())

    def _require(self, window: str, rows: pa.Table, added: pa.Table, rejects: pa.Table | None) -> None:
        """Raise `StorageError` for rows that must not be in a window."""
        both = (
            pa.concat_tables([rows.select(PLACE), filled(rejects, DEAD_LETTERS).select(PLACE)]) if rejects is not None else rows
        )
        wrong = {
            "of another window": pc.invert(pc.fill_null(pc.equal(rows[WINDOW], window), False)),
            "at or past the position, which ingestion is yet to stage": pa.array(~self._below(rows)),
            "of a record that has a row in another window": pa.array(present(self._table, added)),
        }
        for what, which in wrong.items():
            if count := pc.sum(which).as_py():
                raise self._refusal(window, f"{count} rows {what}")
        if (twice := both.num_rows - distinct(both).num_rows) > 0:
            raise self._refusal(window, f"{twice} records twice")

    def _refusal(self, window: str, what: str) -> StorageError:
        return StorageError(
            f"consumer {self.consumer.name}: window {window} was to be replaced by {what}. The table is as it was. This is a "
            "mistake in what made the rows; please report it."
        )

    def _final(self, rows: pa.Table) -> Mask:
        mask = np.zeros(rows.num_rows, np.bool_)
        for life in by_life(rows):
            position = ids.position(self._table, self.consumer.name, life.tp)
            if ids.is_current(self._table, self.consumer.name, life.tp, life.label):
                mask[life.rows] = life.offsets < (position.offset or 0)
        return mask

    def _below(self, rows: pa.Table) -> Mask:
        """Rows of an earlier incarnation of the topic are below any position."""
        mask = np.ones(rows.num_rows, np.bool_)
        for life in by_life(rows):
            if ids.is_current(self._table, self.consumer.name, life.tp, life.label):
                mask[life.rows] = life.offsets < (ids.position(self._table, self.consumer.name, life.tp).offset or 0)
        return mask

    def _change(self, kind: Literal["rewrite", "replay"], by: str, why: str) -> StagedCommit:
        known = StagedCommit(uuid.uuid4().hex, kind, self.consumer.name, self._member)
        return replace(known, by=by, why=why, schema_id=self.schema_id)

    def _commit(self, change: StagedCommit, rows: pa.Table, window: str | None) -> StagedCommit:
        """Write and commit `rows`, instead of the window's or in addition. Raises `Conflict` when somebody else did the like."""
        keys = rows[WINDOW].combine_chunks()
        parts = split(rows.drop_columns([WINDOW]), keys) if rows.num_rows else ()
        files = [write_file(self.consumer.staged, part, key, self._clock) for key, part in parts]
        windows = {f.window: WindowChange(f.rows, f.size, 1) for f in files if f.window is not None}
        if window is not None:
            windows.setdefault(window, WindowChange(0, 0, 0))
        change = replace(change, rows=rows.num_rows, bytes=sum(f.size for f in files), windows=windows)
        number = ids.rewrites_id(self.consumer.name)
        claim = transactions({number: (self._table.transaction_version(number) or 0) + 1})
        replacing = None if window is None else {WINDOW: window}
        actions = [file.action() for file in files]
        try:
            version = commit(self._table, self.schema, [WINDOW], actions, claim, change.to_json(), replacing)
        except Conflict:
            for file in files:
                (self.consumer.staged / file.path).unlink()
            raise
        return replace(change, version=version, committed_at_ms=int(self._clock.time() * 1000))
