"""The checks of a staged table as Dagster's, and the job that runs them.

One op reads the table once for all four. The sensor asks for it when commits have settled, once for a state of the table: it
reads three narrow columns of every row, which is cheap beside ingesting them but not free.
"""

from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from orchestration import mirror
from orchestration.catalog import check_job_name
from orchestration.checks.staged import Finding, no_duplicates, offsets_accounted_for, ranges_join, snapshot
from orchestration.mirror_events import staged_key

CHECKS = {
    "ranges_join": "Offset ranges of the commits join end to start.",
    "no_duplicates": "No offset of a partition is in two rows.",
    "offsets_accounted_for": "Rows, dead letters and offsets without a record are all the offsets.",
    "mirrored": "Dagster's events are of the newest commits.",
}


def staged_checks(consumer: Consumer) -> dg.AssetChecksDefinition:
    """The checks of a consumer's staged table."""
    key = staged_key(consumer.name)

    @dg.multi_asset_check(
        name=f"checks_of_{consumer.name}",
        specs=[dg.AssetCheckSpec(name, asset=key, description=text) for name, text in CHECKS.items()],
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for name, finding in findings(context.instance, consumer).items():
            yield dg.AssetCheckResult(
                asset_key=key,
                check_name=name,
                passed=finding.passed,
                severity=dg.AssetCheckSeverity.WARN if finding.warning else dg.AssetCheckSeverity.ERROR,
                description=finding.text or None,
                metadata={**finding.numbers, **({"problems": list(finding.problems[:100])} if finding.problems else {})},
            )

    return checks


def check_job(consumer: Consumer) -> UnresolvedAssetJobDefinition:
    """The job that runs them."""
    return dg.define_asset_job(
        name=check_job_name(consumer.name),
        selection=dg.AssetSelection.checks(*(dg.AssetCheckKey(staged_key(consumer.name), name) for name in CHECKS)),
        description=f"Checks the staged table of {consumer.name} against its log, its dead letters and Dagster's events.",
        executor_def=dg.in_process_executor,
    )


def findings(instance: dg.DagsterInstance, consumer: Consumer, clock: Clock | None = None) -> dict[str, Finding]:
    """All checks of a consumer, by name. A table that does not exist yet passes."""
    shot = snapshot(consumer)
    if shot is None:
        return dict.fromkeys(CHECKS, Finding())
    return {
        "ranges_join": ranges_join(shot.book),
        "no_duplicates": no_duplicates(shot),
        "offsets_accounted_for": offsets_accounted_for(shot),
        "mirrored": mirrored(instance, consumer, clock or SystemClock()),
    }


def mirrored(instance: dg.DagsterInstance, consumer: Consumer, clock: Clock) -> Finding:
    """Whether Dagster's newest event of every window is of the window's newest commit.

    What is missing or differs is written by the sensor's next tick, or the next run.
    """
    lacking = [behind for behind in mirror.compare(instance, consumer, clock) if not mirror.young(behind, clock)]
    if lacking:
        mirror.distrust(instance, consumer)
    problems = tuple(
        f"{behind.part}: the newest commit is version {behind.commits[-1].version}, and "
        f"{f'the newest event is of {behind.found}' if behind.found else 'there is no event'}; "
        "the next run or sensor tick writes it"
        for behind in lacking
    )
    return Finding(problems, {"not_mirrored": len(lacking)})
