"""A result's columns beside those of its table: new ones are added, none goes, and no type changes."""

from collections.abc import Sequence

from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.schema import Field

from consumers.errors import StorageError


def united(table: DeltaTable, schema: Schema, partition_by: Sequence[str], job: str) -> Schema:
    """The table's columns and then those that only the result has; rows without a column have nulls in it.

    Raises `StorageError` for a column of another type, and for a table that is partitioned otherwise.
    """
    there = {field.name: field for field in table.schema().fields}
    new = {field.name: field for field in schema.fields}
    differing = [
        f"{name} ({_type(there[name])} in the table, {_type(field)} in the result)"
        for name, field in new.items()
        if name in there and there[name].type != field.type
    ]
    if list(partition_by) != list(table.metadata().partition_columns):
        differing.append(f"partition columns {', '.join(table.metadata().partition_columns)} became {', '.join(partition_by)}")
    if differing:
        raise StorageError(
            f"{job}: the result does not fit {table.table_uri}: {'; '.join(differing)}. Nothing was published, readers see "
            f"version {table.version()}. Give the column its old type or another name; or remove the table, and all of it is "
            "computed again."
        )
    kept = [_nullable(field) if name not in new else field for name, field in there.items()]
    return Schema(kept + [_nullable(field) for name, field in new.items() if name not in there])


def add_columns(table: DeltaTable, schema: Schema) -> None:
    """Add the columns that the table lacks, in a commit of its own: one that only adds files changes no columns."""
    there = {field.name for field in table.schema().fields}
    if missing := [field for field in schema.fields if field.name not in there]:
        table.alter.add_columns(
            missing, post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
        )
        table.update_incremental()


def _nullable(field: Field) -> Field:
    return Field(field.name, field.type, nullable=True, metadata=field.metadata)


def _type(field: Field) -> str:
    return str(getattr(field.type, "type", field.type))
