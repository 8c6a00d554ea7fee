import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from consumers.clock import SystemClock
from orchestration.catalog import ConsumerAttributes, ingestion_run_config
from orchestration.components.consumer_assets import partitions, topic_assets
from orchestration.components.consumer_member import run_member
from orchestration.components.consumer_scaffold import KafkaConsumerParams, KafkaConsumerScaffolder
from orchestration.definitions import defs
from orchestration.mirror_events import staged_key, topic_key
from orchestration.resources.kafka import KafkaResource
from tests.orchestration.staged_tables import consumer_in


@pytest.fixture(scope="module")
def loaded() -> dg.Definitions:
    return defs()


def test_a_consumer_is_assets_a_job_checks_and_a_sensor(loaded: dg.Definitions) -> None:
    repository = loaded.get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert {"kafka/flights", "staged/flights", "dead_letters/flights"} <= keys
    assert {"ingest_flights", "check_flights"} <= set(repository.job_names)
    assert {"keep_flights", "observe_topics"} <= {sensor.name for sensor in repository.sensor_defs}
    checks = {key.name for key in repository.asset_graph.asset_check_keys if key.asset_key == staged_key("flights")}
    assert checks == {"ranges_join", "no_duplicates", "offsets_accounted_for", "mirrored", "time_lag", "retention"}


def test_the_staged_asset_says_what_it_is(loaded: dg.Definitions) -> None:
    spec = loaded.resolve_asset_graph().get(staged_key("flights"))
    assert [key.to_user_string() for key in spec.parent_keys] == ["kafka/flights"]
    assert spec.group_name == "flights" and spec.kinds == {"kafka", "delta"}
    schema = spec.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema | dg.TableSchemaMetadataValue)
    columns = schema.value.columns if isinstance(schema, dg.TableSchemaMetadataValue) else schema.columns
    assert {"distance", "_offset", "_window"} <= {column.name for column in columns}


def test_ingestion_runs_in_one_process_in_its_consumers_pool_and_is_ended_late(loaded: dg.Definitions) -> None:
    job = loaded.resolve_job_def("ingest_flights")
    [node] = job.graph.nodes
    assert node.definition.pools == {"ingest_flights"}
    assert job.executor_def.name == "in_process"
    assert job.run_tags == {"weir/consumer": "flights", "dagster/max_runtime": "1920", "dagster/max_retries": "0"}


def test_the_run_configuration_fits_the_job(loaded: dg.Definitions) -> None:
    job = loaded.resolve_job_def("ingest_flights")
    assert dg.validate_run_config(job, ingestion_run_config("flights", until_caught_up=True, max_seconds=5))


def test_the_current_window_is_a_partition(tmp_path: Path) -> None:
    daily = partitions(consumer_in(tmp_path))
    hourly = partitions(consumer_in(tmp_path, window={"every": "hour", "first": "2024-01-01"}))
    assert daily.get_first_partition_key() == "2024-01-01" and hourly.get_first_partition_key() == "2024-01-01-00"
    for definition in (daily, hourly):
        last = definition.get_last_partition_window()
        assert last is not None and last.start.timestamp() <= SystemClock().time() < last.end.timestamp()


def test_consumers_of_one_topic_share_its_asset(tmp_path: Path) -> None:
    first = consumer_in(tmp_path)
    second = first.model_copy(update={"name": "again"})
    [topic] = topic_assets([first, second])
    assert topic.description is not None and "orders, again" in topic.description


def load_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    """The definitions of a project of its own, with what is in `folder/shop/defs`."""
    (folder / "pyproject.toml").write_text('[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n')
    for package in (folder / "shop", folder / "shop" / "defs"):
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        monkeypatch.delitem(sys.modules, name)
    own = dg.load_from_defs_folder(path_within_project=folder)
    return dg.Definitions.merge(own, dg.Definitions(resources={"kafka": KafkaResource()}))


@pytest.mark.parametrize("mistake", ["topik: 1", "schedule: nightly"])
def test_dagster_names_file_and_line_of_a_mistake(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop" / "defs" / "orders" / "defs.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"type: orchestration.components.KafkaConsumer\nattributes:\n  topic: orders\n  {mistake}\n")
    with pytest.raises(Exception) as raised:
        load_project(tmp_path, monkeypatch)
    assert f"attributes.{mistake.partition(':')[0]} at {path}:4" in str(raised.value.__cause__)


DEFINITION = """\
type: orchestration.components.KafkaConsumer
attributes: {topic: orders, schema: {a: long}, window: day, %s}
"""


def test_a_split_is_assets_a_job_checks_and_a_sensor_for_each_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop" / "defs" / "orders" / "defs.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(DEFINITION % "split: {column: a, tables: {ones: [1], rest: []}}")
    repository = load_project(tmp_path, monkeypatch).get_repository_def()
    graph = repository.asset_graph
    for name in ("orders_ones", "orders_rest"):
        assert graph.get(staged_key(name)).parent_keys == {topic_key("orders")}
        assert f"ingest_{name}" in repository.job_names
        assert f"keep_{name}" in {sensor.name for sensor in repository.sensor_defs}


def test_a_transform_that_cannot_be_imported_is_named_when_dagster_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop" / "defs" / "orders" / "defs.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(DEFINITION % "transform: shop.nowhere.f")
    with pytest.raises(Exception) as raised:
        load_project(tmp_path, monkeypatch)
    told = f"{raised.value} {raised.value.__cause__}"
    assert "cannot import 'shop.nowhere' of 'shop.nowhere.f'" in told


def test_the_schema_for_editors_allows_the_short_forms() -> None:
    schema = ConsumerAttributes.model_json_schema(by_alias=True)
    assert {"enum": ["hour", "day"]} in schema["properties"]["window"]["anyOf"]
    assert {"type": "string"} in schema["properties"]["schema"]["additionalProperties"]["anyOf"]
    assert json.dumps(schema)


def test_what_scaffolding_writes_is_a_consumer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request: dg.ScaffoldRequest[KafkaConsumerParams] = dg.ScaffoldRequest(
        type_name="orchestration.components.KafkaConsumer",
        target_path=tmp_path / "shop" / "defs" / "clicks",
        scaffold_format="yaml",
        project_root=tmp_path,
        params=KafkaConsumerParams(plain=True),
    )
    KafkaConsumerScaffolder().scaffold(request)
    graph = load_project(tmp_path, monkeypatch).resolve_asset_graph()
    assert graph.get(staged_key("clicks")).parent_keys == {topic_key("clicks")}


def test_the_main_thread_is_free_while_a_member_works_and_its_result_is_returned() -> None:
    seen: list[str] = []
    looked = threading.Event()

    def work(stop: threading.Event) -> str:
        assert looked.wait(20)
        return "done"

    def meanwhile() -> None:
        seen.append(threading.current_thread().name)
        looked.set()

    assert run_member(work, meanwhile, SystemClock()) == "done"
    assert set(seen) == {threading.current_thread().name}


def test_a_member_that_is_told_to_stop_finishes_and_its_result_is_returned() -> None:
    assert run_member(lambda stop: stop.wait(20), lambda: "enough", SystemClock()) is True


def test_a_members_error_is_raised() -> None:
    def work(stop: threading.Event) -> None:
        raise ValueError("no such topic")

    with pytest.raises(ValueError, match="no such topic"):
        run_member(work, lambda: None, SystemClock())


class Interruption(BaseException):
    """Raised in the main thread, as Dagster does to end a run."""


def test_an_interrupted_member_finishes_before_the_interruption_goes_on() -> None:
    finished = threading.Event()

    def work(stop: threading.Event) -> None:
        stop.wait(20)
        finished.set()

    def interrupt() -> None:
        raise Interruption

    with pytest.raises(Interruption):
        run_member(work, interrupt, SystemClock())
    assert finished.is_set()


def test_an_interrupted_member_that_hangs_is_left_behind() -> None:
    release = threading.Event()

    def work(stop: threading.Event) -> None:
        release.wait(20)

    def interrupt() -> None:
        raise Interruption

    started = SystemClock().monotonic()
    with pytest.raises(Interruption):
        run_member(work, interrupt, SystemClock(), patience=0.3)
    assert SystemClock().monotonic() - started < 10
    release.set()


def test_terminating_a_run_stops_its_member_and_cancels_it() -> None:
    stopped = threading.Event()

    def work(stop: threading.Event) -> None:
        stop.wait(20)
        stopped.set()

    def interrupt() -> None:
        raise dg.DagsterExecutionInterruptedError

    @dg.op
    def member() -> None:
        run_member(work, interrupt, SystemClock())

    @dg.job(executor_def=dg.in_process_executor)
    def job() -> None:
        member()

    with dg.instance_for_test() as instance, pytest.raises(dg.DagsterExecutionInterruptedError):
        job.execute_in_process(instance=instance)
    assert stopped.is_set()


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("WEIR_HOME", str(tmp_path / "home"))
    yield
