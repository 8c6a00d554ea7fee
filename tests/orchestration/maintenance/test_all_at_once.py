"""Ingestion, compaction, vacuum and two readers at once: nothing is lost or twice, and no reader fails.

WEIR_SOAK_SECONDS makes it long; in the suite it ends after some rounds.
"""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from consumers.clock import SystemClock
from consumers.maintenance import Maintenance
from consumers.staging.local import local_dataset
from consumers.staging.log import commits
from consumers.types import OffsetRange, TopicPartition
from orchestration.checks.staged import no_duplicates, offsets_accounted_for, ranges_join, snapshot
from orchestration.maintenance.compaction import compact
from orchestration.maintenance.run import Table, maintain
from orchestration.maintenance.vacuum import vacuum
from tests.at_once import AtOnce
from tests.consumers.parts import consumer, offsets
from tests.consumers.staging.rewriting import GOOD, TP, Ingestion

SECONDS = float(os.environ.get("WEIR_SOAK_SECONDS", "0"))
ROUNDS = 25
SETTINGS = Maintenance(newest_windows=0, keep_hours=24)
DAY_MS, FIRST_MS = 86_400_000, 1_356_998_400_000
LONG_AGO = 1_600_000_000


def test_ingestion_compaction_vacuum_and_two_jobs_at_once_disturb_nobody(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    at_once, ingestion = AtOnce(SECONDS, ROUNDS), Ingestion(parts, SystemClock())
    followed = tmp_path / "followed"
    read = [-1]

    def ingest(count: int) -> None:
        stamps: list[int | None] = [FIRST_MS + DAY_MS * (count % 3)] * 4
        ingestion.stage(GOOD, GOOD, b"bad", GOOD, stamps=stamps)

    def compaction() -> None:
        compact(DeltaTable(parts.staged), SETTINGS)
        maintain(Table("c_dead_letters", "dead_letters", parts.dead_letters, SETTINGS), at_once.clock)

    def vacuuming() -> None:
        left = parts.staged / "attempt-dead" / "part-0.parquet"
        left.parent.mkdir(exist_ok=True)
        left.touch()
        os.utime(left, (LONG_AGO, LONG_AGO))
        vacuum(DeltaTable(parts.staged), SETTINGS.keep_hours, at_once.clock, protected=max(read[0], 0))
        assert not left.exists()

    def whole_table() -> None:
        """A job that reads one version whole: it has just the offsets that its position passes, without dead letters."""
        table = DeltaTable(parts.staged)
        found = sorted(local_dataset(table).to_table(columns=["_offset"])["_offset"].to_pylist())
        end = table.transaction_version(f"c/{TP}") or 0
        assert found == [offset for offset in range(end) if offset % 4 != 2]

    def incremental() -> None:
        """A job that appends the rows of new commits, found by the log: the files that changed data."""
        table = DeltaTable(parts.staged)
        wanted: dict[TopicPartition, OffsetRange] = {}
        for commit in commits(table, read[0]):
            for tp, step in commit.ranges.items() if commit.kind == "batch" else ():
                wanted[tp] = wanted.get(tp, step).hull(step)
        if TP in wanted:
            rows = local_dataset(table).to_table(columns=["_offset"])["_offset"].to_pylist()
            new = [offset for offset in rows if wanted[TP].start <= offset < wanted[TP].end]
            write_deltalake(followed, pa.table({"offset": pa.array(new, pa.int64())}), mode="append")
        read[0] = table.version()

    others = {work.__name__: work for work in (compaction, vacuuming, whole_table, incremental)}
    at_once.run(ingest, others)
    incremental()
    good = {offset for offset in range(ingestion.next) if offset % 4 != 2}
    assert offsets(parts.staged) == {("id", 0, offset): 1 for offset in good}
    assert offsets(parts.dead_letters) == {("id", 0, offset): 1 for offset in range(ingestion.next) if offset % 4 == 2}
    assert Counter(DeltaTable(followed).to_pyarrow_table()["offset"].to_pylist()) == Counter(good)
    shot = snapshot(parts)
    assert shot is not None
    assert not [*ranges_join(shot.book).problems, *no_duplicates(shot).problems, *offsets_accounted_for(shot).problems]
    assert compact(DeltaTable(parts.staged), SETTINGS).conflicts == 0
    assert len(DeltaTable(parts.staged).file_uris()) <= 3
