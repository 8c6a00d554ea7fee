"""Canaries for secrets: whatever fails, they are in no log at debug level, no error, nothing that Dagster keeps, and no table."""

import io
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.brokers.options import KafkaOptions
from consumers.config import Consumer, ConsumerConfig
from consumers.database.failures import DEFAULT_BACKOFF, Backoff
from consumers.database.positions import SqlPositions
from consumers.errors import BrokerError, ConfigError, StorageError
from consumers.processing import ingest
from orchestration.catalog import ingestion_run_config
from orchestration.components.consumer_job import ingestion_job
from orchestration.resources.kafka import KafkaResource
from orchestration.resources.spark.secrets import plain, secret_arguments
from tests.consumers.parts import contents

PASSWORD, KEY, QUOTED = "c4nary-of-sasl", "c4nary-of-key", "c4nary 'of\"\\ quotes"
CANARIES = (b"c4nary",)
NOWHERE = "127.0.0.1:1"
GOOD = b'{"a":1}'


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged, at debug level, with tracebacks."""
    out, root = io.StringIO(), logging.getLogger()
    handler, before = logging.StreamHandler(out), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield out
    root.setLevel(before)
    root.removeHandler(handler)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Dagster with SQLite in a folder."""
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as found:
        yield found


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> KafkaResource:
    """A cluster that is not there, with every kind of secret, named as the docs say."""
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", PASSWORD)
    monkeypatch.setenv("KEY_PASSWORD", KEY)
    return KafkaResource(
        bootstrap_servers=NOWHERE,
        security_protocol="sasl_plaintext",
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password=dg.EnvVar("KAFKA_SASL_PASSWORD"),
        options={"debug": "all", "ssl.key.password": dg.EnvVar("KEY_PASSWORD"), "socket.connection.setup.timeout.ms": "1000"},
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """The same, but what it leads to is a cluster in memory with a good record and a bad one."""
    cluster = MemoryCluster()
    MemoryAdmin(cluster).create_topic("t")
    producer = MemoryProducer(cluster)
    for value in (GOOD, b"\xff"):
        producer.send("t", value)
    producer.close()

    def member(options: KafkaOptions, topic: str, group: str, *_: object, **__: object) -> MemoryConsumer:
        assert (options.options["sasl.password"], options.options["ssl.key.password"]) == (PASSWORD, KEY)
        return MemoryConsumer(cluster, topic, group)

    monkeypatch.setattr(ingest, "KafkaGroupMember", member)
    return cluster


def consumer(folder: Path, **more: object) -> Consumer:
    config = ConsumerConfig.model_validate({"topic": "t", "schema": {"a": "long"}, "window": "day", **more})
    return Consumer(name="c", config=config, staged=folder / "staged", dead_letters=folder / "dead")


def run(instance: dg.DagsterInstance, kafka: KafkaResource, of: Consumer) -> dg.ExecuteInProcessResult:
    job, config = ingestion_job(of), ingestion_run_config(of.name, until_caught_up=True)
    return job.execute_in_process(config, instance, resources={"kafka": kafka}, raise_on_error=False)


def traces(folder: Path, *texts: str) -> list[str]:
    """Where a canary is: files below a folder (Dagster's databases and logs among them), and texts."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    kept = {str(path): path.read_bytes() for path in files} | {f"text {i}": each.encode() for i, each in enumerate(texts)}
    return [name for name, content in kept.items() if any(canary in content for canary in CANARIES)]


def tables(of: Consumer) -> str:
    return "".join(str(contents(path).to_pylist()) for path in (of.staged, of.dead_letters) if path.exists())


def test_the_search_finds_a_canary_that_was_logged_in_a_run(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    @dg.op
    def careless(context: dg.OpExecutionContext) -> None:
        context.log.info(f"the password is {PASSWORD}")

    dg.GraphDefinition("careful", node_defs=[careless]).execute_in_process(instance=instance)
    assert any(".db" in name for name in traces(tmp_path))


def test_a_cluster_that_cannot_be_reached_tells_no_secret(
    tmp_path: Path, instance: dg.DagsterInstance, kafka: KafkaResource, logged: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = run(instance, kafka, consumer(tmp_path))
    assert not failed.success
    shown = capfd.readouterr()
    assert NOWHERE in shown.err and "librdkafka" in logged.getvalue() + shown.err
    assert traces(tmp_path, logged.getvalue(), shown.out, shown.err, repr(kafka.connection())) == []


def test_bad_records_tell_no_secret(
    tmp_path: Path, instance: dg.DagsterInstance, kafka: KafkaResource, told: MemoryCluster, logged: io.StringIO
) -> None:
    of = consumer(tmp_path)
    assert run(instance, kafka, of).success
    assert contents(of.dead_letters)["_value"].to_pylist() == [b"\xff"]
    assert traces(tmp_path, logged.getvalue(), tables(of)) == []


def test_a_function_that_raises_tells_no_secret(
    tmp_path: Path, instance: dg.DagsterInstance, kafka: KafkaResource, told: MemoryCluster, logged: io.StringIO
) -> None:
    of = consumer(tmp_path, transform="tests.hostile.transforms.failing")
    [failed] = run(instance, kafka, of).filter_events(lambda event: event.is_step_failure)
    assert "does not like these rows" in str(failed.step_failure_data.error)
    assert traces(tmp_path, logged.getvalue(), tables(of)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssl.key.pem": KEY, "security.protocol": "ssl"},
        {"ssl.keystore.location": "/nowhere", "ssl.keystore.password": KEY, "security.protocol": "ssl"},
        {"sasl.mechanism": "SCRAM-SHA-999", "sasl.password": QUOTED, "security.protocol": "sasl_ssl"},
        {"sasl.pasword": PASSWORD},
        {"log_level": KEY, "sasl.password": KEY},
    ],
)
def test_options_that_the_client_refuses_are_told_without_secrets(wrong: Mapping[str, str], logged: io.StringIO) -> None:
    with pytest.raises(BrokerError) as raised:
        KafkaAdmin(KafkaOptions(NOWHERE, wrong))
    assert raised.value.__suppress_context__
    assert "c4nary" not in str(raised.value) + repr(raised.value) + logged.getvalue()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:c4nary@127.0.0.1:1/db?password=c4nary&connect_timeout=1",
        "postgresql+psycopg://me:half@c4nary@127.0.0.1:1/db",
        "postgresql+psycopg://me:c4nary%20'\"@127.0.0.1:1/db?connect_timeout=1",
    ],
)
def test_a_databases_password_is_in_no_error_and_none_of_its_causes(url: str, logged: io.StringIO) -> None:
    engine = create_engine(url)
    with pytest.raises((StorageError, ConfigError)) as raised:
        SqlPositions(engine, "c", "m", backoff=Backoff(attempts=1))
    logging.getLogger("test").error("failed", exc_info=raised.value)
    assert "c4nary" not in logged.getvalue() and "failed" in logged.getvalue()


def test_rows_that_a_database_refuses_are_in_no_error_and_none_of_its_causes(tmp_path: Path, logged: io.StringIO) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'data.db'}")
    positions = SqlPositions(engine, "c", "m", backoff=DEFAULT_BACKOFF)

    def failing() -> None:
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO nowhere VALUES (:value)"), {"value": PASSWORD})

    with pytest.raises(SQLAlchemyError, match="c4nary"):
        failing()
    with pytest.raises(StorageError, match="no such table: nowhere") as raised:
        positions._patiently(failing)
    logging.getLogger("test").error("failed", exc_info=raised.value)
    assert "c4nary" not in logged.getvalue()


def test_secret_settings_of_spark_are_in_a_file_of_ours_and_in_no_arguments(tmp_path: Path) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": QUOTED, "spark.ssl.keyPassword": KEY, "spark.sql.shuffle.partitions": "4"}
    assert plain(conf) == {"spark.sql.shuffle.partitions": "4"}
    with secret_arguments(conf, tmp_path) as (option, name, _):
        file = Path(name)
        assert option == "--properties-file" and "c4nary" not in name
        assert file.stat().st_mode & 0o077 == 0
        assert file.read_text() == ("spark.hadoop.fs.s3a.secret.key=c4nary 'of\"\\\\ quotes\n" + f"spark.ssl.keyPassword={KEY}\n")
    assert not file.exists()
    with secret_arguments(plain(conf), tmp_path) as arguments:
        assert arguments == ()
