"""Maintenance in Dagster: an asset `maintain/<table>` for each table, one job over all of them, and its schedule."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import dagster as dg

from consumers.clock import SystemClock
from consumers.config import Consumer
from orchestration.maintenance.protect import followed_by_jobs
from orchestration.maintenance.run import Round, Table, maintain
from orchestration.mirror_events import table as rows_table

PREFIX = "maintain"
GROUP = "maintenance"
JOB = "maintain_tables"
CRON = "17 */6 * * *"
BUDGET = "file_budget"
SAFE = "safe_settings"
Protected = Callable[[], Mapping[Path, int]]
"""Which versions readers may still ask for, by table."""


def tables_of(consumer: Consumer) -> list[Table]:
    """A consumer's tables that are to be looked after."""
    settings = consumer.config.maintenance
    if not settings.enabled:
        return []
    # Dead letters have none of the columns that a consumer's rows may be sorted by.
    letters = settings.model_copy(update={"z_order": []})
    return [
        Table(consumer.name, "staged", consumer.staged, settings),
        Table(f"{consumer.name}_dead_letters", "dead_letters", consumer.dead_letters, letters),
    ]


def maintenance_assets(
    tables: Iterable[Table], owners: Sequence[str] = (), protected: Protected = followed_by_jobs
) -> list[dg.AssetsDefinition]:
    """An asset for each table, in a group of their own: they are no step of what leads from topic to table."""
    return [_asset(table, owners, protected) for table in tables]


def maintained(defs: dg.Definitions) -> list[str]:
    """The tables by name that have a maintenance asset in some definitions."""
    keys = (key for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition) for key in asset.keys)
    return [key.path[1] for key in keys if key.path[0] == PREFIX]


def maintenance_definitions(tables: Iterable[str]) -> dg.Definitions:
    """The job over all of these tables (by name) and its schedule; nothing where there are none."""
    names = sorted(tables)
    if not names:
        return dg.Definitions()
    job = dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.assets(*([PREFIX, name] for name in names)),
        description="Compacts small files, vacuums what nobody needs any more, and writes checkpoints, table by table.",
        executor_def=dg.in_process_executor,
        run_tags={"dagster/max_retries": "0"},
    )
    schedule = dg.ScheduleDefinition(job=job, cron_schedule=CRON, default_status=dg.DefaultScheduleStatus.RUNNING)
    return dg.Definitions(jobs=[job], schedules=[schedule])


def _asset(table: Table, owners: Sequence[str], protected: Protected) -> dg.AssetsDefinition:
    key = dg.AssetKey([PREFIX, table.name])

    @dg.asset(
        key=key,
        group_name=GROUP,
        owners=list(owners),
        kinds={"maintenance"},
        description=f"The health of the table {table.name}: compaction, vacuum, checkpoints, and what they came to.",
        check_specs=[
            dg.AssetCheckSpec(BUDGET, asset=key, description="No window has more files than `files_per_window`."),
            dg.AssetCheckSpec(SAFE, asset=key, description="No setting of the table lets positions or its log expire."),
        ],
        pool=f"maintain_{table.name}",
    )
    def health(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster reads it
        done = maintain(table, SystemClock(), protected().get(table.path))
        if done is None:
            context.log.info(f"{table.name} has no table yet.")
            return dg.MaterializeResult(metadata={"files": 0}, check_results=[_passed(BUDGET), _passed(SAFE)])
        return dg.MaterializeResult(metadata=_metadata(table, done), check_results=[_budget(table, done), _safe(done)])

    return health


def _metadata(table: Table, done: Round) -> dict[str, dg.MetadataValue | int | float]:
    return {
        "files": done.after.files,
        "bytes": done.after.bytes,
        "small_file_share": done.after.small_file_share,
        "files_before": done.before.files,
        "most_files_in_a_window": done.after.most_files,
        "compacted_bytes": done.compacted.bytes,
        "compacted_partitions": done.compacted.partitions,
        "partitions_left_to_others": done.compacted.conflicts,
        "reclaimed_bytes": done.reclaimed.bytes,
        "reclaimed_files": done.reclaimed.files,
        "delta_version": done.after.version,
        "path": dg.MetadataValue.path(table.path),
    }


def _budget(table: Table, done: Round) -> dg.AssetCheckResult:
    over = done.after.over_budget
    text = (
        f"{len(over)} windows have more than {table.settings.files_per_window} files. The newest windows are compacted when they "
        "are not written any more; raise `batch.max_latency_seconds` to write fewer files, or let maintenance run more often."
    )
    return dg.AssetCheckResult(
        check_name=BUDGET,
        passed=not over,
        severity=dg.AssetCheckSeverity.WARN,
        description=text if over else None,
        metadata={"windows": rows_table({"window": "string", "files": "int"}, list(over.items()))},
    )


def _safe(done: Round) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=SAFE,
        passed=not done.unsafe,
        severity=dg.AssetCheckSeverity.ERROR,
        description="\n".join(done.unsafe) or None,
    )


def _passed(name: str) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(check_name=name, passed=True)
