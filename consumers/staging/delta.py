"""The few things that we ask of a Delta table: open it, and commit files and application transactions together."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from consumers.errors import OwnershipLost, StorageError
from consumers.staging.history import commit_infos
from consumers.staging.log import METADATA_KEY

_RETRIES = 100
# The log says which offsets every commit accounts for, so nobody's OPTIMIZE or VACUUM may expire it.
_CONFIGURATION = {"delta.enableExpiredLogCleanup": "false"}


def open_table(path: Path, schema: pa.Schema, partition_by: Sequence[str] = ()) -> DeltaTable:
    """The table at `path`, created empty when there is none. Raises `StorageError` when it has other columns."""
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
    _require_columns(table, schema)
    return table


def _require_columns(table: DeltaTable, schema: pa.Schema) -> None:
    present = {f.name: f.type for f in pa.schema(table.schema().to_arrow())}
    differing = [
        f"{f.name} ({present.get(f.name, 'absent')} in the table, {f.type} by the definition)"
        for f in schema
        if f.name not in present or not _same(present[f.name], f.type)
    ]
    differing += [f"{name} (in the table only)" for name in present.keys() - set(schema.names)]
    if differing:
        raise StorageError(
            f"table {table.table_uri} does not have the definition's columns: {'; '.join(sorted(differing))}. Nothing was "
            "written. Change the definition back, or give the consumer a new name to stage into a new table."
        )


def _same(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two Arrow types are one Delta type. Names of list items and view types are no part of a Delta type."""
    return _delta_name(stored) == _delta_name(wanted)


def _delta_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_delta_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {_delta_name(f.type)}' for f in kind)}>"
    return str(kind).replace("large_", "").replace("_view", "")


def commit(
    table: DeltaTable,
    schema: pa.Schema,
    partition_by: Sequence[str],
    actions: Sequence[AddAction],
    transactions: Sequence[Transaction],
    metadata: str | None = None,
) -> int:
    """Commit `actions` and `transactions` from the snapshot that `table` has loaded, then load the newest one.

    Returns the commit's version. Raises `OwnershipLost` when somebody committed one of the same application transactions
    since that snapshot; nothing of ours is in the table then.
    """
    before = table.version()
    mark = uuid.uuid4().hex
    custom = {"commit": mark} | ({METADATA_KEY: metadata} if metadata is not None else {})
    with conflicts_are_lost_ownership():
        table.create_write_transaction(
            list(actions),
            "append",
            schema,
            list(partition_by),
            commit_properties=CommitProperties(
                custom_metadata=custom, max_commit_retries=_RETRIES, app_transactions=list(transactions)
            ),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )
    table.update_incremental()
    return _version_of(table, mark, before)


@contextmanager
def conflicts_are_lost_ownership() -> Iterator[None]:
    """Turn delta-rs's report of a concurrent application transaction into `OwnershipLost`."""
    try:
        yield
    except CommitFailedError as error:
        raise OwnershipLost(f"another writer committed first: {error}") from error


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
