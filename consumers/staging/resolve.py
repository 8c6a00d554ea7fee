"""Dead letters that have become rows, and those of a rewrite: what is true of them, and the marks that say so.

The staged table decides. A dead letter whose record has a staged row is resolved, whether it is marked or not; marks are written
after the rows, and a crash between the two is made good by whoever comes next. Marks are written from a snapshot of the dead
letters that is older than that of the staged table by which they are judged, so a dead letter that comes later is never marked
for an earlier row.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import StorageError
from consumers.staging.delta import Conflict, commit, open_table, transactions
from consumers.staging.files import write_file
from consumers.staging.local import local_dataset, text
from consumers.staging.places import Mask, by_life, distinct, present
from consumers.staging.schema import DEAD_LETTERS, PLACE, filled
from consumers.staging.writing import HOOKS, WRITER
from consumers.types import OffsetRange, Ranges, TopicPartition

_ATTEMPTS = 50
_PAUSE_SECONDS = 0.05
_CHUNK = 100_000
_OURS = ("_commit_id", "_attempts", "_resolved_at", "_resolved_by", "_rejected_at")
_STATE = [*PLACE, "_commit_id", "_resolved_at"]


class Resolver:
    """Reads and marks a consumer's dead letters, beside the members that append to them."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._letters = open_table(consumer.dead_letters, DEAD_LETTERS)
        self._staged = DeltaTable(consumer.staged)

    def append(self, rows: pa.Table, commit_id: str) -> None:
        """Write dead letters (columns of `DEAD_LETTERS`) that count only when the rewrite `commit_id` is committed."""
        now = int(self._clock.time() * 1_000_000)
        stamped = filled(rows.drop_columns([name for name in _OURS if name in rows.column_names]), DEAD_LETTERS)
        for name, value in (("_commit_id", commit_id), ("_rejected_at", now)):
            at = DEAD_LETTERS.get_field_index(name)
            stamped = stamped.set_column(at, name, pa.array([value] * rows.num_rows, DEAD_LETTERS.field(name).type))
        file = write_file(self._consumer.dead_letters, stamped, None, self._clock)

        def attempt() -> int:
            self._letters.update_incremental()
            return commit(self._letters, DEAD_LETTERS, [], [file.action()], [])

        self._persistently(attempt)

    def unresolved(self, rows: pa.Table) -> Mask:
        """For each of `rows` whether a dead letter of the same record waits, neither resolved nor of an unfinished rewrite."""
        self._letters.update_incremental()
        found = np.zeros(rows.num_rows, np.bool_)
        if not rows.num_rows:
            return found
        dataset = local_dataset(self._letters)
        for life in by_life(rows):
            for batch in dataset.to_batches(columns=["_offset", *_STATE[-2:]], filter=life.here & WAITING):
                found[life.rows] |= np.isin(life.offsets, batch["_offset"].to_numpy())
        return found

    def settle(self, ranges: Ranges, by: str) -> int:
        """Mark as resolved by `by` the dead letters in `ranges` that are rows by now. Returns how many."""
        self._letters.update_incremental()
        marked, waiting, count = 0, [], 0
        for tp, step in ranges.items():
            for batch in local_dataset(self._letters).to_batches(columns=_STATE, filter=_inside(tp, step) & WAITING):
                waiting.append(batch.select(PLACE))
                count += batch.num_rows
                if count >= _CHUNK:
                    marked += self.mark(pa.Table.from_batches(waiting), None, by)
                    waiting, count = [], 0
        return marked + (self.mark(pa.Table.from_batches(waiting), None, by) if count else 0)

    def reopen(self, ranges: Ranges) -> int:
        """Let the resolved dead letters in `ranges` wait again that are no rows any longer, as after a restore: how many."""
        self._letters.update_incremental()
        opened = 0
        for tp, step in ranges.items():
            for batch in local_dataset(self._letters).to_batches(columns=_STATE, filter=_inside(tp, step) & RESOLVED):
                opened += self._open(distinct(pa.Table.from_batches([batch])))
        return opened

    def _open(self, places: pa.Table) -> int:
        def attempt() -> int:
            self._letters.update_incremental()
            self._staged.update_incremental()
            gone = places.filter(pa.array(~present(self._staged, places)))
            if not gone.num_rows:
                return 0
            merger = self._matching(gone, "t._resolved_at IS NOT NULL")
            done = merger.when_matched_update({"_resolved_at": _NULL_TIME, "_resolved_by": _NULL_TEXT}).execute()
            return int(done["num_target_rows_updated"])

        return self._persistently(attempt) if places.num_rows else 0

    def mark(self, rows: pa.Table, failed: pa.Table | None, by: str) -> int:
        """Mark the dead letters of these records that are rows by now as resolved; those of `failed` (with a new `_reason`) that
        are not, as tried in vain. Returns how many were marked either way."""
        places = distinct(rows)

        def attempt() -> int:
            self._letters.update_incremental()
            source = self._judged(places, failed, by)
            return self._merge(source) if source.num_rows else 0

        return self._persistently(attempt)

    def _judged(self, places: pa.Table, failed: pa.Table | None, by: str) -> pa.Table:
        """The records to be marked, and how."""
        self._staged.update_incremental()
        staged = present(self._staged, places)
        resolved = places.filter(pa.array(staged))
        count = resolved.num_rows
        parts = [resolved.append_column("reason", pa.nulls(count, pa.string())).append_column("resolved", _constant(True, count))]
        if failed is not None:
            failed = failed.filter(pa.array(~present(self._staged, failed)))
            again = pa.table([failed[name].cast(DEAD_LETTERS.field(name).type) for name in PLACE], names=list(PLACE))
            again = again.append_column("reason", failed["_reason"].cast(pa.string()))
            parts.append(again.append_column("resolved", _constant(False, failed.num_rows)))
        judged = pa.concat_tables(parts)
        now = pa.scalar(int(self._clock.time() * 1_000_000), DEAD_LETTERS.field("_resolved_at").type)
        return judged.append_column("at", _constant(now, judged.num_rows)).append_column("by", _constant(by, judged.num_rows))

    def _matching(self, source: pa.Table, state: str) -> TableMerger:
        """The dead letters `t` in this state that are of the records `s`."""
        # In words as well, because delta-rs reads only files that the literals allow.
        low, high = pc.min(source["_offset"]).as_py(), pc.max(source["_offset"]).as_py()
        same = " AND ".join(f"t.{name} = s.{name}" for name in PLACE)
        return self._letters.merge(
            source,
            f"t._offset >= {low} AND t._offset <= {high} AND {state} AND t._commit_id IS NULL AND {same}",
            source_alias="s",
            target_alias="t",
            writer_properties=WRITER,
            commit_properties=_properties(),
            post_commithook_properties=HOOKS,
        )

    def _merge(self, source: pa.Table) -> int:
        merger = self._matching(source, "t._resolved_at IS NULL")
        done = (
            merger.when_matched_update({"_resolved_at": "s.at", "_resolved_by": "s.by"}, predicate="s.resolved")
            .when_matched_update({"_attempts": "coalesce(t._attempts, 0) + 1", "_reason": "s.reason"}, predicate="NOT s.resolved")
            .execute()
        )
        return int(done["num_target_rows_updated"])

    def waiting(self) -> dict[str, int]:
        """The rewrites that dead letters wait for, and when each wrote the latest (milliseconds since the epoch)."""
        self._letters.update_incremental()
        dataset = local_dataset(self._letters)
        found = dataset.to_table(columns=["_commit_id", "_rejected_at"], filter=pc.field("_commit_id").is_valid())
        latest = found.group_by("_commit_id").aggregate([("_rejected_at", "max")])
        times = latest["_rejected_at_max"].cast(pa.int64()).to_pylist()
        return {str(id_): int(at or 0) // 1000 for id_, at in zip(latest["_commit_id"].to_pylist(), times, strict=True)}

    def conclude(self, commit_ids: Iterable[str]) -> None:
        """The rewrites with these ids are committed: their dead letters are final."""
        gone = {"_commit_id": _NULL_TEXT}
        self._changing(
            commit_ids,
            lambda named: self._letters.update(
                gone,
                predicate=named,
                writer_properties=WRITER,
                commit_properties=_properties(),
                post_commithook_properties=HOOKS,
            ),
        )

    def withdraw(self, commit_ids: Iterable[str]) -> None:
        """The rewrites with these ids will never be committed: their dead letters go."""
        self._changing(
            commit_ids,
            lambda named: self._letters.delete(named, WRITER, commit_properties=_properties(), post_commithook_properties=HOOKS),
        )

    def settled(self) -> int:
        """The version of the staged table up to which all marks are known to be written; -1 for none."""
        self._letters.update_incremental()
        version: int | None = self._letters.transaction_version(self._settled_id)
        return -1 if version is None else version

    def set_settled(self, version: int) -> None:
        """Remember it, unless somebody else does just now."""
        with suppress(Conflict):
            commit(self._letters, DEAD_LETTERS, [], [], transactions({self._settled_id: version}))

    @property
    def _settled_id(self) -> str:
        return f"{self._consumer.name}/settled"

    def _changing(self, commit_ids: Iterable[str], change: Callable[[str], object]) -> None:
        names = sorted(commit_ids)
        if not names:
            return
        named = f"_commit_id IN ({', '.join(repr(name) for name in names)})"

        def attempt() -> int:
            self._letters.update_incremental()
            change(named)
            return 0

        self._persistently(attempt)

    def _persistently(self, attempt: Callable[[], int]) -> int:
        """Members append meanwhile, and every conflict means that one of them got on."""
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except (CommitFailedError, Conflict):
                self._clock.sleep(_PAUSE_SECONDS)
        raise StorageError(
            f"{self._consumer.dead_letters}: others committed first, {_ATTEMPTS} times in a row. Dead letters that have become "
            "rows are not marked yet; nothing is lost or doubled. Try again when fewer are being written."
        )


WAITING = pc.field("_resolved_at").is_null() & pc.field("_commit_id").is_null()
"""The dead letters that are not resolved, and of no unfinished rewrite."""
RESOLVED = pc.field("_resolved_at").is_valid()
_NULL_TIME, _NULL_TEXT = "CAST(NULL AS TIMESTAMP)", "CAST(NULL AS STRING)"


def _inside(tp: TopicPartition, step: OffsetRange) -> ds.Expression:
    return (
        (text("_topic") == tp.topic)
        & (pc.field("_partition") == tp.partition)
        & (pc.field("_offset") >= step.start)
        & (pc.field("_offset") < step.end)
    )


def _properties() -> CommitProperties:
    return CommitProperties(max_commit_retries=_ATTEMPTS)


def _constant(value: object, count: int) -> pa.Array:
    return pa.repeat(value, count)
