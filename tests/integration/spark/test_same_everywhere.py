"""The jobs that are shipped, on real data in several files and commits: the same rows on every runtime, bit for bit."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from consumers.staging.log import METADATA_KEY, StagedCommit
from consumers.staging.schema import WINDOW, filled, staged_schema
from consumers.types import OffsetRange, TopicPartition
from orchestration import catalog, job_catalog
from orchestration.compute.job import Input, Job
from orchestration.compute.plan import plan, request
from orchestration.compute.publish import publish
from orchestration.resources.spark import SparkResource
from orchestration.samples.sources import flights_frame, transactions_frame, weather_frame
from orchestration.settings import Settings
from tests.spark_fixture import connect_server, standalone

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]

ROUNDS = (6, 8)
"""After so many commits the jobs run, and again."""


@dataclass(frozen=True)
class Staged:
    """A table as ingestion writes it, of eight commits."""

    name: str
    frame: pd.DataFrame
    time: str

    def write(self, path: Path, first: int, end: int) -> None:
        """Commits from `first` up to `end`: each takes every eighth record, and so touches many windows."""
        columns = catalog.consumers(Settings.load())[self.name].config.columns
        schema = staged_schema(columns)
        for number in range(first, end):
            part = self.frame.iloc[number :: ROUNDS[-1]]
            rows = pa.Table.from_pandas(part, preserve_index=False)
            rows = rows.append_column("_offset", pa.array(part.index, pa.int64()))
            rows = rows.append_column("_tombstone", pa.array([False] * len(part)))
            rows = rows.append_column(WINDOW, pa.array(part[self.time].dt.strftime("%Y-%m-%d")))
            rows = filled(rows, schema)
            write_deltalake(
                str(path), rows, mode="append", partition_by=[WINDOW], commit_properties=self._said(number, len(part))
            )

    def _said(self, number: int, rows: int) -> CommitProperties:
        ranges = {TopicPartition(self.name, 0): OffsetRange(number, number + 1)}
        said = StagedCommit(f"{number:012d}", "batch", self.name, "test", ranges=ranges, rows=rows)
        return CommitProperties(custom_metadata={METADATA_KEY: said.to_json()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("same")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_HOME", str(folder / "home"))
        yield folder


@pytest.fixture(scope="module")
def staged(folder: Path) -> list[Path]:
    """The tables after either round: the files of the first are among those of the second."""
    january = flights_frame().iloc[:27_000]
    tables = [
        Staged("flights", january.sample(20_000, random_state=1).sort_index(), "time_hour"),
        Staged("weather", weather_frame().iloc[:2_200], "time_hour"),
        Staged("transactions", transactions_frame(count=20_000), "booked_at"),
    ]
    first, last = 0, folder / "written"
    found = []
    for end in ROUNDS:
        for table in tables:
            table.write(last / table.name, first, end)
        found.append(shutil.copytree(last, folder / f"staged-{end}"))
        first = end
    return found


def computed(runtime: SparkResource, folder: Path, staged: list[Path]) -> dict[str, tuple[str, list[str]]]:
    """Of every job's output the schema, and the rows in full, in an order of their own: equal only when every bit is."""
    runtime.stop()
    jobs = [placed(job, folder) for job in job_catalog.jobs(Settings.load()).values()]
    try:
        for now in staged:
            shutil.copytree(now, folder / "staged", dirs_exist_ok=True)
            for job in jobs:
                todo = plan(job)
                assert todo.stale
                asked = request(todo)
                publish(todo, asked, runtime.compute(dg.build_op_context(), asked))
    finally:
        runtime.stop()
    tables = {job.name: DeltaTable(str(job.output)) for job in jobs}
    return {
        name: (table.schema().to_json(), sorted(map(repr, table.to_pyarrow_table().to_pylist())))
        for name, table in tables.items()
    }


def placed(job: Job, folder: Path) -> Job:
    """The job over tables of the runtime's own."""
    inputs: Mapping[str, Input] = {
        name: replace(source, path=folder / "staged" / source.path.name) for name, source in job.inputs.items()
    }
    return replace(job, inputs=inputs, output=folder / job.name)


@pytest.fixture(scope="module")
def expected(folder: Path, staged: list[Path]) -> dict[str, tuple[str, list[str]]]:
    """What a local session with all cores computes."""
    return computed(SparkResource(spark_config={"spark.master": "local[*]"}), folder / "local", staged)


def compare(found: dict[str, tuple[str, list[str]]], expected: dict[str, tuple[str, list[str]]]) -> None:
    """Job by job, so that a failure names one."""
    assert {"airport_delays", "carrier_delays", "account_balances", "hourly_routes"} <= expected.keys() == found.keys()
    for name, (schema, rows) in expected.items():
        assert len(rows) > 80, name
        assert found[name][0] == schema, name
        assert found[name][1] == rows, name


def test_a_local_session_computes_the_same_with_one_core_and_with_all(
    folder: Path, staged: list[Path], expected: dict[str, tuple[str, list[str]]]
) -> None:
    runtime = SparkResource(spark_config={"spark.master": "local[1]"})
    compare(computed(runtime, folder / "one-core", staged), expected)


def test_executors_of_a_standalone_cluster_compute_the_same(
    folder: Path, staged: list[Path], expected: dict[str, tuple[str, list[str]]]
) -> None:
    with standalone(folder / "cluster") as cluster:
        compare(computed(SparkResource(spark_config=cluster.config), folder / "standalone", staged), expected)


@pytest.mark.skipif(util.find_spec("grpc_status") is None, reason="the extra `connect` is not installed")
def test_a_connect_server_computes_the_same(folder: Path, staged: list[Path], expected: dict[str, tuple[str, list[str]]]) -> None:
    with connect_server(folder / "server") as url:
        compare(computed(SparkResource(spark_config={"spark.remote": url}), folder / "connect", staged), expected)
