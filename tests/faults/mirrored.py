"""Whether Dagster's events tell what the Delta log and the tables say, by looking at both; and the repair that comes before."""

from collections import Counter

import dagster as dg
from deltalake import DeltaTable

from consumers.brokers.protocol import BrokerAdmin
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.staging.log import StagedCommit, commits
from orchestration.mirror_events import DATA_VERSION, data_version, dead_letters_key, staged_key
from orchestration.repair import Repairer

_ROWS = "dagster/partition_row_count"


class Later(SystemClock):
    """An hour from now: what is young may still be on its way, and a repair leaves it alone."""

    def time(self) -> float:
        return super().time() + 3600


def repaired(instance: dg.DagsterInstance, consumer: Consumer, admin: BrokerAdmin) -> list[str]:
    """Mend what `weir repair` mends; what it could not, or finds again afterwards."""
    repairer = Repairer(instance, consumer, admin, Later())
    left = [outcome.said for outcome in repairer.mend(repairer.look()) if not outcome.mended]
    return left + [f"{each.where}: {each.explanation}" for each in repairer.look()]


def differences(instance: dg.DagsterInstance, consumer: Consumer) -> list[str]:
    """Windows whose newest event is not of the newest commit that touched them, or counts other rows than there are."""
    rows = _rows(consumer)
    found = []
    for window, commit in _newest(consumer).items():
        event = _event(instance, dg.AssetRecordsFilter(asset_key=staged_key(consumer.name), asset_partitions=[window]))
        found += _compared(window, event, commit)
        told = event and event.metadata[_ROWS].value if event and _ROWS in event.metadata else None
        if told is not None and told != rows[window]:
            found.append(f"{window}: the event counts {told} rows, the table has {rows[window]}")
    dead = [commit for commit in commits(consumer.staged) if commit.dead_letters or commit.resolved]
    if dead:
        event = _event(instance, dg.AssetRecordsFilter(asset_key=dead_letters_key(consumer.name)))
        found += _compared("dead letters", event, dead[-1])
    return found


def _compared(what: str, event: dg.AssetMaterialization | None, commit: StagedCommit) -> list[str]:
    told = (event.tags or {}).get(DATA_VERSION) if event else None
    return [] if told == data_version(commit) else [f"{what}: the newest event is of {told}, the commit {data_version(commit)}"]


def _newest(consumer: Consumer) -> dict[str, StagedCommit]:
    """The last commit that touched each window."""
    return {window: commit for commit in commits(consumer.staged) for window in commit.windows}


def _rows(consumer: Consumer) -> Counter[str]:
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return Counter()
    return Counter(DeltaTable(consumer.staged).to_pyarrow_table(columns=["_window"])["_window"].to_pylist())


def _event(instance: dg.DagsterInstance, wanted: dg.AssetRecordsFilter) -> dg.AssetMaterialization | None:
    records = instance.fetch_materializations(wanted, limit=1).records
    return records[0].asset_materialization if records else None
