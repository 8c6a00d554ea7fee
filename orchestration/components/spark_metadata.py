"""What Dagster is told about a job's result: metadata of materializations, and results of audits."""

from collections.abc import Mapping

import dagster as dg
import pyarrow as pa
from dagster import AssetCheckResult

from orchestration.compute.output import BUCKET, INPUTS, Output
from orchestration.compute.plan import Plan
from orchestration.compute.record import Publication
from spark_jobs.request import AuditResult

Metadata = dict[str, dg.MetadataValue]


def metadata(todo: Plan, output: Output, made: Publication | None, window: str, seconds: float) -> Metadata:
    """Of a window, or of all (""). `made` is what the run published; None where nothing was to be done."""
    job = todo.job
    rows = output.rows.get(window, 0)
    return {
        "rows": dg.MetadataValue.int(rows),
        "dagster/partition_row_count" if job.windowed else "dagster/row_count": dg.MetadataValue.int(rows),
        "unchanged": dg.MetadataValue.bool(window not in todo.stale),
        "seconds": dg.MetadataValue.float(seconds),
        "windows_in_run": dg.MetadataValue.int(len(todo.stale)),
        "output_version": dg.MetadataValue.int(output.version),
        "code_version": dg.MetadataValue.text(job.code_version()),
        "mode": dg.MetadataValue.text(job.mode),
        **{f"input_version/{name}": dg.MetadataValue.int(pinned.version) for name, pinned in todo.inputs.items()},
        **(_made(made) if made is not None and window in todo.stale else {}),
    }


def with_columns(about: Metadata, output: Output) -> None:
    """Add the table's columns, which Dagster shows from the newest event."""
    if output.table is None:
        return
    fields = pa.schema(output.table.schema().to_arrow())
    columns = [dg.TableColumn(field.name, str(field.type)) for field in fields if field.name not in {INPUTS, BUCKET}]
    about["dagster/column_schema"] = dg.MetadataValue.table_schema(dg.TableSchema(columns=columns))


def result_of(found: AuditResult, key: dg.AssetKey) -> AssetCheckResult:
    """An audit's result as a check's: an error where it keeps the result from readers, else a warning."""
    severity = dg.AssetCheckSeverity.ERROR if found.blocking else dg.AssetCheckSeverity.WARN
    return AssetCheckResult(passed=found.passed, asset_key=key, check_name=found.name, severity=severity, description=found.said)


def not_evaluated(key: dg.AssetKey, name: str, why: str) -> AssetCheckResult:
    """Dagster wants a result of every check: one that was not looked at has not passed."""
    return AssetCheckResult(
        passed=False,
        asset_key=key,
        check_name=name,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"not evaluated: {why}. It is when something is computed next.",
    )


def _made(made: Publication) -> Metadata:
    found: Metadata = {
        "reason": dg.MetadataValue.text(made.reason),
        "published_rows": dg.MetadataValue.int(made.rows),
        "audits": dg.MetadataValue.text(_audits(made)),
        **{f"parameter/{name}": dg.MetadataValue.text(str(value)) for name, value in made.parameters.items()},
        **{
            f"input_offsets/{name}": dg.MetadataValue.text(_offsets(used.ranges))
            for name, used in made.inputs.items()
            if used.ranges
        },
        **{f"input_roots/{name}": dg.MetadataValue.text(_roots(used.roots)) for name, used in made.inputs.items() if used.roots},
    }
    if made.ui:
        found["spark_ui"] = dg.MetadataValue.url(made.ui)
    if made.application:
        found["spark_application"] = dg.MetadataValue.text(made.application)
    return found


def _audits(made: Publication) -> str:
    failed = [audit.name for audit in made.audits if not audit.passed]
    return f"{len(made.audits) - len(failed)} passed" + (f", failed: {', '.join(failed)}" if failed else "")


def _offsets(ranges: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{tp} [{start}, {end})" for tp, (start, end) in sorted(ranges.items()))


def _roots(roots: Mapping[str, int]) -> str:
    return ", ".join(f"{name} v{version}" for name, version in sorted(roots.items()))
