"""The few things that we ask of a Delta table: open it, and commit files and application transactions together."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from consumers.config import Consumer
from consumers.errors import OwnershipLost, StorageError
from consumers.staging.columns import fit_columns
from consumers.staging.history import commit_infos
from consumers.staging.log import METADATA_KEY
from consumers.staging.writing import HOOKS, WRITER

_RETRIES = 100
_CONFLICTS = 20
# The log says which offsets every commit accounts for, so nobody's OPTIMIZE or VACUUM may expire it.
_CONFIGURATION = {"delta.enableExpiredLogCleanup": "false"}


def open_table(path: Path, schema: pa.Schema, partition_by: Sequence[str] = (), consumer: Consumer | None = None) -> DeltaTable:
    """The table at `path`, created empty when there is none; columns that it lacks are added. `consumer` is for the message.

    Raises `StorageError` when a column has another type, or is in the table only.
    """
    if not DeltaTable.is_deltatable(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(
                str(path), schema=schema, partition_by=list(partition_by), mode="error", configuration=_CONFIGURATION
            )
        except DeltaError:
            # Somebody else created it in between, or it cannot be created; opening it tells which.
            if not DeltaTable.is_deltatable(str(path)):
                raise
    table = DeltaTable(path)
    fit_columns(table, schema, consumer)
    return table


def commit(
    table: DeltaTable,
    schema: pa.Schema,
    partition_by: Sequence[str],
    actions: Sequence[AddAction],
    transactions: Sequence[Transaction],
    metadata: str | None = None,
    replacing: Mapping[str, str] | None = None,
) -> int:
    """Commit `actions` and `transactions` from the snapshot that `table` has loaded, then load the newest one.

    With `replacing`, the files that the snapshot has of these partition values go in the same commit; what others have added
    since then stays.

    Returns the commit's version. Raises `OwnershipLost` when somebody committed one of the same application transactions
    since that snapshot; nothing of ours is in the table then.
    """
    before = table.version()
    mark = uuid.uuid4().hex
    custom = {"commit": mark} | ({METADATA_KEY: metadata} if metadata is not None else {})
    with conflicts_are_lost_ownership():
        table.create_write_transaction(
            list(actions),
            "append" if replacing is None else "overwrite",
            # To overwrite is to give the table this schema, so it must be its own.
            schema if replacing is None else table.schema(),
            list(partition_by),
            None if replacing is None else [(name, "=", value) for name, value in replacing.items()],
            commit_properties=CommitProperties(
                custom_metadata=custom, max_commit_retries=_RETRIES, app_transactions=list(transactions)
            ),
            post_commithook_properties=HOOKS,
        )
    table.update_incremental()
    return _version_of(table, mark, before)


def delete(table: DeltaTable, predicate: str, transactions: Sequence[Transaction], metadata: str) -> int:
    """Commit the removal of the rows that `predicate` (SQL) names, together with `transactions`, as `commit` does.

    There must be such a row in the loaded snapshot: without one delta-rs commits nothing.
    """
    before = table.version()
    mark = uuid.uuid4().hex
    with conflicts_are_lost_ownership():
        table.delete(
            predicate,
            writer_properties=WRITER,
            commit_properties=CommitProperties(
                custom_metadata={"commit": mark, METADATA_KEY: metadata},
                max_commit_retries=_RETRIES,
                app_transactions=list(transactions),
            ),
            post_commithook_properties=HOOKS,
        )
    table.update_incremental()
    return _version_of(table, mark, before)


class Conflict(OwnershipLost):
    """Somebody else committed first, and nothing of ours is in the table."""


def while_owned(attempt: Callable[[], int]) -> int:
    """What `attempt` returns, which checks that what it commits is ours to commit; after a conflict it is called again.

    A conflict need not mean that ownership is lost: whoever replaces files conflicts with every commit that started before.
    """
    for _ in range(_CONFLICTS):
        try:
            return attempt()
        except Conflict:
            continue
    return attempt()


@contextmanager
def conflicts_are_lost_ownership() -> Iterator[None]:
    """Turn delta-rs's report of a concurrent commit into `Conflict`, which is an `OwnershipLost`."""
    try:
        yield
    except CommitFailedError as error:
        raise Conflict(f"another writer committed first: {error}") from error


def _version_of(table: DeltaTable, mark: str, before: int) -> int:
    """The version of the commit that carries `mark`; others may have committed before and after it."""
    newest = table.version()
    if newest == before + 1:
        return newest
    for version, info in commit_infos(table, before):
        if info.get("commit") == mark:
            return version
    raise StorageError(f"table {table.table_uri}: a commit that succeeded is not in the log after version {before}")


def transactions(versions: Mapping[str, int]) -> list[Transaction]:
    """Application transactions from their ids and versions."""
    return [Transaction(app_id, version) for app_id, version in versions.items()]
