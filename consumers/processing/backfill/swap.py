"""Making a shadow the table: window by window where only rows differ, and in one commit where columns or windows do.

Positions stand. Window by window, ingestion goes on beside it, and what it staged since the shadow was begun stays. Before one
commit for all, ingestion must have been stopped: nothing may have been staged since.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from consumers.clock import Clock
from consumers.errors import StorageError
from consumers.processing.backfill.difference import difference
from consumers.processing.backfill.locate import at_or_past
from consumers.processing.backfill.shadow import Shadow, rows_of
from consumers.staging import positions as ids
from consumers.staging.columns import fit_columns
from consumers.staging.delta import conflicts_are_lost_ownership, transactions
from consumers.staging.files import NewFile, write_file
from consumers.staging.local import windows_of
from consumers.staging.log import METADATA_KEY, StagedCommit, WindowChange, newest_first
from consumers.staging.places import absent_from, ranges_of
from consumers.staging.resolve import Resolver
from consumers.staging.rewrite import Replacement, Rewriter, Snapshot
from consumers.staging.schema import PLACE, WINDOW, filled, schema_id, staged_schema
from consumers.staging.writing import HOOKS


def swap(shadow: Shadow, clock: Clock, by: str) -> Iterator[StagedCommit]:
    """Make the shadow the table, giving every commit; then drop it. Goes on where it was interrupted.

    Raises `StorageError`, with the windows that are not swapped yet as they were, where others changed the table's rows since the
    shadow was begun, or where the table must be replaced as a whole and the shadow is not of all of it, or more was staged since.
    """
    why, whole = _reasons(shadow)
    done = _since(shadow)
    finished = next((commit for commit in done if commit.why == whole), None)
    if finished is not None or not _in_place(shadow):
        yield _whole(shadow, clock, by, whole, finished)
    else:
        yield from _by_window(shadow, clock, by, why)
    shadow.drop()


def whole_table(shadow: Shadow) -> bool:
    """Whether a swap replaces the whole table. Raises `StorageError` where there is no such shadow."""
    shadow.open()
    return not _in_place(shadow)


def _in_place(shadow: Shadow) -> bool:
    """Whether windows can be replaced one by one: the columns fit, and no record changes its window."""
    schema = staged_schema(shadow.consumer.config.columns, shadow.consumer.config.keep_raw)
    try:
        # Adding columns is what ingestion does with them, too.
        fit_columns(DeltaTable(shadow.consumer.staged), schema)
    except StorageError:
        return False
    return difference(shadow).moved == 0


def _by_window(shadow: Shadow, clock: Clock, by: str, why: str) -> Iterator[StagedCommit]:
    consumer, beside, positions = shadow.consumer, shadow.open(), shadow.positions()
    rejects = shadow.rejects()
    rewriter = Rewriter(consumer, clock)
    built = {*windows_of(beside)}
    for window in sorted({*windows_of(DeltaTable(consumer.staged)), *built}):
        if not shadow.done(window) and window not in built:
            continue
        new = rows_of(beside, window)

        def make(before: Snapshot, new: pa.Table = new) -> Replacement:
            # Also those that came while the windows before this one were swapped.
            _since(shadow)
            kept = before.rows
            if shadow.done(before.window):
                kept = kept.filter(pa.array(at_or_past(DeltaTable(consumer.staged), consumer, kept, positions)))
            rows = pa.concat_tables([filled(new, rewriter.schema), kept.filter(pa.array(absent_from(new, kept)))])
            gone = rejects.filter(pa.array(~absent_from(before.rows, rejects)))
            return Replacement(rows, gone, ranges_of(rows), {}, by, why)

        commit = rewriter.rewrite(window, make)
        if commit is not None:
            yield commit


def _whole(shadow: Shadow, clock: Clock, by: str, why: str, finished: StagedCommit | None) -> StagedCommit:
    """All files of the table go, and the shadow's rows come, in one commit with today's columns."""
    consumer, rejects = shadow.consumer, shadow.rejects()
    resolver = Resolver(consumer, clock)
    change = finished or _replace(shadow, resolver, rejects, clock, by, why)
    resolver.conclude([change.commit_id])
    beside = shadow.open()
    for window in windows_of(beside):
        resolver.mark(rows_of(beside, window, PLACE), None, change.schema_id)
    return change


def _replace(shadow: Shadow, resolver: Resolver, rejects: pa.Table, clock: Clock, by: str, why: str) -> StagedCommit:
    consumer, beside, positions = shadow.consumer, shadow.open(), shadow.positions()
    table = DeltaTable(consumer.staged)
    _since(shadow)
    now = ids.all_positions(table, consumer.name, [consumer.config.topic])
    if not shadow.whole or now != positions:
        staged = sum(now.values()) - sum(positions.values())
        what = f"{staged} offsets were staged since" if shadow.whole else "it is not of all windows"
        raise StorageError(
            f"consumer {consumer.name}: the shadow '{shadow.id}' changes columns or windows, so it replaces the whole table, "
            f"and {what}. Nothing was changed. Stop ingestion, build a shadow of all windows, and swap that."
        )
    schema = staged_schema(consumer.config.columns, consumer.config.keep_raw)
    columns = [name for name in schema.names if name != WINDOW]
    files = [write_file(consumer.staged, rows_of(beside, each, columns), each, clock) for each in windows_of(beside)]
    change = _change(shadow, table, files, rejects, by, why)
    if rejects.num_rows:
        resolver.append(rejects, change.commit_id)
    version = _overwrite(table, schema, files, change, {ids.position_id(consumer.name, tp): at for tp, at in positions.items()})
    return replace(change, version=version, committed_at_ms=int(clock.time() * 1000))


def _change(shadow: Shadow, table: DeltaTable, files: list[NewFile], rejects: pa.Table, by: str, why: str) -> StagedCommit:
    windows = {file.window: WindowChange(file.rows, file.size, 1) for file in files if file.window is not None}
    return StagedCommit(
        commit_id=uuid.uuid4().hex,
        kind="rewrite",
        consumer=shadow.consumer.name,
        member=by,
        rows=sum(file.rows for file in files),
        bytes=sum(file.size for file in files),
        dead_letters=rejects.num_rows,
        removed=table.count(),
        windows=windows | {window: WindowChange(0, 0, 0) for window in windows_of(table) if window not in windows},
        by=by,
        why=why,
        schema_id=schema_id(shadow.consumer.config.columns),
    )


def _overwrite(
    table: DeltaTable, schema: pa.Schema, files: list[NewFile], change: StagedCommit, positions: dict[str, int]
) -> int:
    """Commit; whoever staged or rewrote meanwhile makes it fail. Returns the version."""
    number = ids.rewrites_id(change.consumer)
    claim = transactions(positions | {number: (table.transaction_version(number) or 0) + 1})
    with conflicts_are_lost_ownership():
        table.create_write_transaction(
            [file.action() for file in files],
            "overwrite",
            schema,
            [WINDOW],
            commit_properties=CommitProperties(
                custom_metadata={"commit": change.commit_id, METADATA_KEY: change.to_json()},
                max_commit_retries=0,
                app_transactions=claim,
            ),
            post_commithook_properties=HOOKS,
        )
    table.update_incremental()
    return table.version()


def _reasons(shadow: Shadow) -> tuple[str, str]:
    """Why a swap commits: of a window, and of all at once."""
    why = f"swap of shadow {shadow.id}"
    return why, f"{why} as a whole"


def _since(shadow: Shadow) -> list[StagedCommit]:
    """This swap's commits so far. Raises `StorageError` where somebody else changed rows that the shadow was made from."""
    found = []
    for commit in newest_first(DeltaTable(shadow.consumer.staged), shadow.version()):
        if commit.why in _reasons(shadow):
            found.append(commit)
        elif commit.kind in ("rewrite", "replay", "move"):
            raise StorageError(
                f"consumer {shadow.consumer.name}: the table was changed after the shadow '{shadow.id}' was begun ({commit.kind} "
                f"in version {commit.version}), which a swap would undo. What is not swapped yet is as it was. "
                "Build a new shadow, and swap that."
            )
    return found
