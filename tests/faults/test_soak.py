"""A member, four threads of Spark jobs, compaction, vacuum, rewrites and readers of three kinds at once: nothing is lost or
twice, no reader fails or sees a mixture.

Runs when WEIR_SOAK_SECONDS is set. Without Spark the same is `tests/orchestration/maintenance/test_all_at_once.py`.
"""

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import SystemClock
from consumers.maintenance import Maintenance
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.staging.delta import Conflict
from consumers.staging.local import local_dataset
from consumers.staging.positions import committed_positions
from consumers.staging.rewrite import Replacement, Rewriter, Snapshot
from consumers.types import TopicPartition
from orchestration import sql
from orchestration.compute.job import Input, Job
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import discard, publish
from orchestration.maintenance.protect import Follower, followed
from orchestration.maintenance.run import Table, maintain
from orchestration.resources.spark import SparkResource
from spark_jobs import runner
from tests.at_once import AtOnce
from tests.consumers.parts import DAY_MS, consumer, offsets
from tests.faults import soak_jobs
from tests.faults.soak_jobs import bad, check_newest, check_per_window, check_rows, key

SECONDS = float(os.environ.get("WEIR_SOAK_SECONDS", "0"))
pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(SECONDS + 900),
    pytest.mark.skipif(not SECONDS, reason="WEIR_SOAK_SECONDS says how long"),
]

PARTITIONS, DAYS, STEP = 2, 5, 10
SETTINGS = Maintenance(newest_windows=0, keep_hours=24)
SAFE_SECONDS = float(os.environ.get("WEIR_SOAK_SAFE_SECONDS", "60"))
_AHEAD = SETTINGS.keep_hours * 3600 - SAFE_SECONDS


class Ahead(SystemClock):
    """A clock on which what is older than the safe seconds is older than `keep_hours`."""

    def time(self) -> float:
        return super().time() + _AHEAD


class Aging:
    """Moves the time of removals in the log as far into the past as `Ahead` is in the future: vacuum's clock cannot be set."""

    def __init__(self) -> None:
        self.done: set[Path] = set()

    def age(self, table: Path) -> None:
        for commit in sorted(set((table / "_delta_log").glob("0*.json")) - self.done):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            for action in actions:
                if "remove" in action:
                    action["remove"]["deletionTimestamp"] -= int(_AHEAD * 1000)
            aged = commit.with_suffix(".aged")
            aged.write_text("".join(json.dumps(action) + "\n" for action in actions))
            aged.rename(commit)
            self.done.add(commit)


class Soak:
    """The parts, and what each thread does in a round."""

    def __init__(self, folder: Path, spark: SparkResource) -> None:
        self.clock, self.at_once = SystemClock(), AtOnce(SECONDS, rounds=20)
        self.counts: Counter[str] = Counter()
        self.spark = spark
        self.cluster = MemoryCluster(self.clock)
        self.admin = MemoryAdmin(self.cluster)
        self.admin.create_topic("t", PARTITIONS)
        schema = {"a": "long", "g": "long"}
        self.parts = consumer(folder / "tables" / "staged", schema=schema, batch={"max_latency_seconds": 1})
        tables = folder / "tables"
        made = [("window", soak_jobs.per_window), ("incremental", soak_jobs.as_they_are), ("merge", soak_jobs.newest)]
        self.jobs = {mode: self._job(tables, mode, f"{soak_jobs.__name__}.{function.__name__}") for mode, function in made}
        self.checks = {"staged": check_rows, "window": check_per_window, "incremental": check_rows, "merge": check_newest}
        self.tables = {"staged": self.parts.staged, **{mode: job.output for mode, job in self.jobs.items()}}
        self.next = 0
        self.stopped = threading.Event()

    def _job(self, tables: Path, mode: str, function: str) -> Job:
        keys = ("a",) if mode == "merge" else ()
        inputs = {"rows": Input(self.parts.staged)}
        return Job(mode, function, inputs, tables / mode, mode, "v1", keys=keys, buckets=4)  # type: ignore[arg-type]

    def produce(self, count: int) -> None:
        """The next records of both partitions."""
        producer = MemoryProducer(self.cluster)
        for offset in range(self.next, self.next + STEP):
            at = DAY_MS + 86_400_000 * (offset % DAYS)
            for partition in range(PARTITIONS):
                value = b"bad" if bad(offset) else b'{"a": %d, "g": 0}' % key(partition, offset)
                producer.send("t", value, partition=partition, timestamp_ms=at)
        producer.flush(1)
        self.next += STEP
        self.clock.sleep(0.5)

    def ingest(self) -> None:
        """A member's whole life."""

        def committed(commit: object) -> None:
            self.counts["commits"] += 1

        member = MemoryConsumer(self.cluster, "t", self.parts.group)
        stage_from(member, self.parts, "member", self.stopped, Limits(), committed, Surroundings(self.clock))

    def compute(self, job: Job, session: object = None) -> bool:
        """Plan, compute and publish with the session; whether there was work and nobody was first."""
        spark = session or self.spark.spark_session
        todo = plan(job)
        if not todo.stale:
            self.clock.sleep(0.2)
            return False
        asked = request(todo)
        result = runner.run(spark, asked)  # type: ignore[arg-type]
        try:
            publish(todo, asked, result)
        except Conflict:
            discard(Path(asked.attempt))
            self.counts[f"{job.name}: conflicts"] += 1
            return False
        self.counts[f"{job.name}: publications"] += 1
        self.counts[f"{job.name}: of them from the start"] += todo.whole
        return True

    def computing(self, mode: str) -> Callable[[], None]:
        """A thread's own session, so that its settings are."""
        session = self.spark.spark_session.newSession()

        def work() -> None:
            self.compute(self.jobs[mode], session)

        return work

    def maintaining(self, name: str) -> Callable[[], None]:
        table = Table(name, "staged" if name == "staged" else "output", self.tables[name], SETTINGS)
        followers = [Follower(job.name, job.output, {"rows": self.parts.staged}) for job in self.jobs.values()]
        aging, ahead = Aging(), Ahead()

        def work() -> None:
            aging.age(table.path)
            protected = followed(followers).get(self.parts.staged) if name == "staged" else None
            done = maintain(table, ahead, protected)
            if done is not None:
                self.counts[f"{name}: compactions"] += done.compacted.partitions
                self.counts[f"{name}: compactions given up"] += done.compacted.conflicts
                self.counts[f"{name}: files vacuumed"] += done.reclaimed.files
            self.clock.sleep(5)

        return work

    def rewriting(self) -> None:
        """A backfill of one window: all of its rows get another `g`."""
        rewriter, draw = Rewriter(self.parts, self.clock), Random(self.counts["rewrites"])
        window = f"2013-01-0{draw.randrange(DAYS) + 1}"

        def raised(now: Snapshot) -> Replacement:
            at = now.rows.schema.get_field_index("g")
            rows = now.rows.set_column(at, "g", pc.add(now.rows["g"], pa.scalar(1, pa.int64())))
            return Replacement(rows, None, {}, {}, "the soak", "a reason")

        self.counts["rewrites"] += rewriter.rewrite(window, raised) is not None
        self.at_once.over.wait(45)

    def reading(self, kind: str, read: Callable[[Path, str], pd.DataFrame]) -> Callable[[], None]:
        """Looks at one table after the other."""

        def work() -> None:
            for name, path in self.tables.items():
                if DeltaTable.is_deltatable(str(path)):
                    found = read(path, name)
                    if len(found):
                        self.checks[name](found)
                    self.counts[f"{kind}: reads"] += 1
            self.clock.sleep(1)

        return work


def by_delta_rs(path: Path, name: str) -> pd.DataFrame:
    table = DeltaTable(path)
    return local_dataset(table).to_table(filter=_records(name)).to_pandas()


def by_duckdb(path: Path, name: str) -> pd.DataFrame:
    found = sql.query(f"SELECT * FROM read_{name}", {f"read_{name}": path}).df()
    assert isinstance(found, pd.DataFrame)
    return found


def _records(name: str) -> pc.Expression | None:
    return ~pc.field("_tombstone") if name == "staged" else None


def rows_of(table: Path) -> list[str]:
    """All rows of an output, but for the columns that say how they came about."""
    frame = DeltaTable(table).to_pyarrow_table().to_pandas()
    kept = sorted(set(frame.columns) - {"_inputs", "_bucket"})
    return sorted(map(repr, frame[kept].itertuples(index=False, name=None)))


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkResource]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_HOME", str(tmp_path / "home"))
        spark = SparkResource(event_logs="")
        spark.stop()
        yield spark
        spark.stop()


def test_nothing_is_lost_or_twice_and_no_reader_fails(tmp_path: Path, spark: SparkResource) -> None:
    soak = Soak(tmp_path, spark)
    session = spark.spark_session.newSession()

    def by_spark(path: Path, name: str) -> pd.DataFrame:
        return session.read.format("delta").load(str(path)).drop("_key", "_headers", "_timestamp").toPandas()

    member = threading.Thread(target=soak.ingest)
    member.start()
    try:
        soak.produce(0)
        while not DeltaTable.is_deltatable(str(soak.parts.staged)):
            soak.clock.sleep(0.1)
        others = {f"job {mode}": soak.computing(mode) for mode in soak.jobs}
        others["job window, a second time"] = soak.computing("window")
        others |= {f"maintenance of {name}": soak.maintaining(name) for name in soak.tables}
        others["rewriting"] = soak.rewriting
        readers = {"delta-rs": by_delta_rs, "DuckDB": by_duckdb, "Spark": by_spark}
        others |= {f"reader {kind}": soak.reading(kind, read) for kind, read in readers.items()}
        soak.at_once.run(soak.produce, others)
        _caught_up(soak)
    finally:
        soak.stopped.set()
        member.join()
        logging.getLogger(__name__).warning("%s", json.dumps(dict(sorted((soak.counts + soak.at_once.rounds).items())), indent=1))
    _each_once(soak)
    _as_computed_anew(soak)


def _caught_up(soak: Soak) -> None:
    deadline = soak.clock.monotonic() + 60
    tps = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    while committed_positions(soak.parts.staged, "c", "t", PARTITIONS) != dict.fromkeys(tps, soak.next):
        assert soak.clock.monotonic() < deadline
        soak.clock.sleep(0.2)


def _each_once(soak: Soak) -> None:
    places = offsets(soak.parts.staged) + offsets(soak.parts.dead_letters)
    assert set(places.values()) == {1}
    assert {(partition, offset) for _, partition, offset in places} == {
        (partition, offset) for partition in range(PARTITIONS) for offset in range(soak.next)
    }


def _as_computed_anew(soak: Soak) -> None:
    for job in soak.jobs.values():
        soak.compute(job)
        assert not plan(job).stale
        clean = replace(job, name=f"clean-{job.name}", output=job.output.with_name(f"clean-{job.name}"))
        assert soak.compute(clean)
        assert rows_of(job.output) == rows_of(clean.output), job.name
