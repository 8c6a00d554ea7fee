"""Makes an attempt part of the output: one commit, after which readers see the new version, and before which the old one.

An attempt is a Delta table of its own in a folder of the output, which no reader looks into. Publishing adds its files to the
output's log and removes what they replace. Whoever dies before leaves an attempt that nobody refers to; vacuum takes it in time.
"""

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from consumers.errors import StorageError
from consumers.staging.delta import Conflict
from consumers.staging.history import commit_infos
from consumers.staging.log import METADATA_KEY
from consumers.staging.schema import WINDOW
from orchestration.compute.changes import data_changed, ranges
from orchestration.compute.columns import add_columns, united
from orchestration.compute.output import BUCKET, INPUTS, NO_TABLE, empty_mark, input_id, published_id
from orchestration.compute.pins import files_of
from orchestration.compute.plan import Plan
from orchestration.compute.record import Publication, Used
from spark_jobs.request import Request, Result

_ATTEMPTS, _NAMED = 20, 5
# The log says what every commit was computed from, so nobody's OPTIMIZE or VACUUM may expire it.
_CONFIGURATION: dict[str, str | None] = {"delta.enableExpiredLogCleanup": "false"}


@dataclass(frozen=True)
class Attempt:
    """What was computed: its folder, and the files in it as the output's log is to have them."""

    folder: Path
    files: tuple[AddAction, ...]
    schema: Schema
    partition_by: tuple[str, ...]
    rows: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def publish(plan: Plan, request: Request, result: Result) -> Publication:
    """Commit the result of a plan's request. All of its audits that block must have passed.

    Raises `Conflict`, with nothing of ours in the table, when it is not the table that was planned for; `StorageError` for
    columns that cannot be in it. The attempt is removed then.
    """
    attempt = read_attempt(Path(request.attempt))
    try:
        _require_files(attempt)
        _require_windows(plan, attempt)
        done = _persistently(plan, attempt, result)
    except (Conflict, StorageError):
        discard(attempt.folder)
        raise
    seal(attempt.folder)
    return done


def read_attempt(folder: Path) -> Attempt:
    """What the folder holds. Raises `StorageError` where nothing was written to it."""
    if not DeltaTable.is_deltatable(str(folder)):
        raise StorageError(
            f"{folder} holds no result: what computed it ended without writing one. Nothing was published. Run it again; the log "
            "of Spark's application says more."
        )
    table = DeltaTable(str(folder))
    found: dict[str, dict[str, Any]] = {}
    for log in sorted((folder / "_delta_log").glob("0*.json")):
        for line in log.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                found[action["add"]["path"]] = action["add"]
            if "remove" in action:
                found.pop(action["remove"]["path"], None)
    rows = sum(int(json.loads(add.get("stats") or "{}").get("numRecords") or 0) for add in found.values())
    files = tuple(_renamed(folder.name, add) for add in found.values())
    return Attempt(folder, files, table.schema(), tuple(table.metadata().partition_columns), rows)


def _require_files(attempt: Attempt) -> None:
    """Raises `StorageError` for a file that is gone: readers of a version that has it would fail."""
    gone = next((file.path for file in attempt.files if not (attempt.folder.parent / file.path).exists()), "")
    if gone:
        raise StorageError(
            f"{gone} was deleted in {attempt.folder.parent} before it was published: by hand, or by a vacuum whose keep_hours is "
            "shorter than this run took. Nothing was published; readers see the table as it was. Run it again."
        )


def _require_windows(plan: Plan, attempt: Attempt) -> None:
    """Raises `StorageError` for rows of windows that were not asked for. Those got no fingerprint."""
    unmarked = [file.partition_values for file in attempt.files if file.partition_values.get(INPUTS, "") is None]
    if unmarked:
        windows = sorted({str(values.get(WINDOW)) for values in unmarked})
        raise StorageError(
            f"{plan.job.name}: the function returned rows of windows other than the {len(plan.stale)} in `windows`: "
            f"{', '.join(windows[:_NAMED])}{', …' if windows[_NAMED:] else ''}. "
            "Nothing was published; readers see the table as it was."
        )


def discard(folder: Path) -> None:
    """Remove an attempt that is not to be published."""
    shutil.rmtree(folder, ignore_errors=True)


def seal(folder: Path) -> None:
    """Remove the log of an attempt that was published: its files belong to the output now."""
    shutil.rmtree(folder / "_delta_log", ignore_errors=True)


def _renamed(folder: str, add: Mapping[str, Any]) -> AddAction:
    path = f"{folder}/{unquote(add['path'])}"
    return AddAction(path, add["size"], add["partitionValues"], add["modificationTime"], True, add.get("stats") or "{}")


def _persistently(plan: Plan, attempt: Attempt, result: Result) -> Publication:
    """Commits that change no data, such as compaction's, may come in between any number of times."""
    for number in range(_ATTEMPTS):
        table = _unchanged_table(plan)
        try:
            return _commit(plan, attempt, result, table)
        except CommitFailedError as error:
            if number == _ATTEMPTS - 1:
                raise Conflict(f"others committed to {plan.job.output} first, {_ATTEMPTS} times: {error}") from error
    raise AssertionError  # the last round returns or raises


def _unchanged_table(plan: Plan) -> DeltaTable | None:
    """The output as it is now, if its data is what was planned for. Raises `Conflict`."""
    path = plan.job.output
    if not DeltaTable.is_deltatable(str(path)):
        if plan.output.version != NO_TABLE:
            raise Conflict(f"{path} is gone since this was planned")
        return None
    table = DeltaTable(str(path))
    # Between a plan that saw no table and now, everything is a change.
    if changed := data_changed(path, plan.output.version, table.version()):
        raise Conflict(f"{changed} changed {path} since this was planned")
    if (table.transaction_version(published_id(plan.job.name)) or 0) != plan.output.published:
        raise Conflict(f"{path} was published to since this was planned")
    return table


def _commit(plan: Plan, attempt: Attempt, result: Result, table: DeltaTable | None) -> Publication:
    said = _publication(plan, attempt, result)
    mark = uuid.uuid4().hex
    properties = CommitProperties(
        custom_metadata={"commit": mark, METADATA_KEY: said.to_json()},
        app_transactions=_transactions(plan, attempt),
        # Another commit in between must be looked at: delta-rs would let ours remove files that compaction has replaced, and
        # leave the compacted ones beside the new.
        max_commit_retries=0,
    )
    hooks = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
    if table is None or (plan.whole and tuple(table.metadata().partition_columns) != attempt.partition_by):
        _create(plan.job.output, attempt, properties, hooks, replacing=table is not None)
        table = DeltaTable(str(plan.job.output))
    else:
        _change(table, plan, attempt, result, properties, hooks)
        table.update_incremental()  # opening it anew costs the more the more commits it has
    version, info = next((version, info) for version, info in commit_infos(table, -1) if info.get("commit") == mark)
    return replace(said, version=version, committed_at_ms=int(info.get("timestamp", 0)))


def _create(path: Path, attempt: Attempt, properties: CommitProperties, hooks: PostCommitHookProperties, replacing: bool) -> None:
    try:
        create_table_with_add_actions(
            str(path),
            attempt.schema,
            list(attempt.files),
            mode="overwrite" if replacing else "error",
            partition_by=list(attempt.partition_by),
            configuration=_CONFIGURATION,
            commit_properties=properties,
            post_commithook_properties=hooks,
        )
    except CommitFailedError:
        raise
    except DeltaError as error:
        # Somebody else created it in between, or it cannot be created.
        if replacing or not DeltaTable.is_deltatable(str(path)):
            raise
        raise Conflict(f"{path} was created by somebody else since this was planned") from error


def _change(
    table: DeltaTable,
    plan: Plan,
    attempt: Attempt,
    result: Result,
    properties: CommitProperties,
    hooks: PostCommitHookProperties,
) -> None:
    going = _replaced(table, plan, result)
    schema = attempt.schema if plan.whole else united(table, attempt.schema, attempt.partition_by, plan.job.name)
    if not going and not plan.whole:
        add_columns(table, schema)
    table.create_write_transaction(
        list(attempt.files),
        "overwrite" if going or plan.whole else "append",
        schema,
        list(attempt.partition_by),
        [(going[0], "in", list(going[1]))] if going and not plan.whole else None,
        commit_properties=properties,
        post_commithook_properties=hooks,
    )


def _replaced(table: DeltaTable, plan: Plan, result: Result) -> tuple[str, Sequence[str]] | None:
    """A partition column and those of its values that the table has and the attempt replaces; None for none."""
    column, values = {
        "window": (WINDOW, plan.stale),
        "full": (WINDOW, ()),
        "incremental": (WINDOW, plan.changes.windows if plan.changes else ()),
        "merge": (BUCKET, result.buckets),
    }[plan.job.mode]
    if not values:
        return None
    there = {str(file[f"partition.{column}"]) for file in files_of(table)} & set(values)
    return (column, sorted(there)) if there else None


def _transactions(plan: Plan, attempt: Attempt) -> list[Transaction]:
    job = plan.job
    found = [Transaction(published_id(job.name), plan.output.published + 1)]
    if job.follows_commits:
        return found + [Transaction(input_id(job.name, name), pinned.version) for name, pinned in plan.inputs.items()]
    filled = {file.partition_values.get(WINDOW) for file in attempt.files} if job.windowed else ({""} if attempt.files else set())
    return found + [empty_mark(job.name, window, plan.fingerprints[window]) for window in plan.stale if window not in filled]


def _publication(plan: Plan, attempt: Attempt, result: Result) -> Publication:
    job = plan.job
    return Publication(
        job=job.name,
        mode=job.mode,
        identity=plan.identity,
        code_version=plan.code_version,
        parameters=dict(job.parameters),
        inputs={name: _used(plan, name) for name in plan.inputs},
        windows=plan.stale if job.windowed else plan.changes.windows if plan.changes else (),
        buckets=result.buckets,
        whole=plan.whole,
        plain=plan.changes is not None and not plan.changes.windows and not plan.changes.unordered,
        rows=attempt.rows,
        files=len(attempt.files),
        bytes=attempt.size,
        reason=plan.reason,
        audits=result.audits,
        application=result.application,
        ui=result.ui,
    )


def _used(plan: Plan, name: str) -> Used:
    pinned, source = plan.inputs[name], plan.sources[name]
    last = plan.output.last.inputs.get(name) if plan.output.last else None
    fresh = plan.whole and plan.job.follows_commits
    after = last.version if last is not None and last.table_id == pinned.table_id and not fresh else -1
    followed = plan.changes if plan.changes is not None and name == plan.job.followed else None
    return Used(
        path=pinned.name,
        version=pinned.version,
        table_id=pinned.table_id,
        windows=-1 if not plan.job.windowed else len(pinned.contents if source.windows is None else source.windows),
        reach=plan.job.inputs[name].reach,
        roots=pinned.roots,
        ranges=followed.ranges if followed else ranges(pinned.path, after, pinned.version),
    )
