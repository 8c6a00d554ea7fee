"""A table published to real Kafka: a killed publisher, and the asset that publishes."""

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import dagster as dg
import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from orchestration.feed.asset import feed_definitions
from orchestration.feed.publish import publish_table
from orchestration.resources.kafka import KafkaResource
from tests.committed import committed
from tests.faults.ledger import new_topic
from tests.orchestration.feed.tables import feed, replace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

KILLS = [
    ("flush", "after"),
    ("send_offsets", "after"),
    ("commit_transaction", "before"),
    ("commit_transaction", "after"),
]
CARRIERS = ["UA", "AA", "B6"]


def by_version(kafka: str, topic: str) -> dict[int, list[tuple[str, int]]]:
    """Version → sorted (carrier, flights) of the records that say they are of it, as readers of committed records see them."""
    table, found = committed(kafka, topic), dict[int, list[tuple[str, int]]]()
    for record in [] if table is None else table.to_pylist():
        (version,) = [header["value"] for header in record["headers"] if header["key"] == "weir-version"]
        value = json.loads(record["value"])
        found.setdefault(int(version), []).append((value["carrier"], value["flights"]))
    return {version: sorted(rows) for version, rows in found.items()}


def test_readers_see_each_version_once_although_the_publisher_is_killed_at_every_step(kafka: str, tmp_path: Path) -> None:
    topic, table = new_topic(kafka, 3), tmp_path / f"t-{uuid.uuid4()}"
    for version, (step, moment) in enumerate(KILLS):
        replace(table, "2013-01-01", *((carrier, version) for carrier in CARRIERS))
        command = [sys.executable, "-m", "tests.integration.publishing_child", kafka, str(table), topic, step, moment]
        assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
        sent = publish_table(table, feed(topic), KafkaOptions(kafka))
        was_sent = (step, moment) == ("commit_transaction", "after")
        assert (sent.version, sent.rows) == (version, 0 if was_sent else len(CARRIERS))
    assert by_version(kafka, topic) == {
        version: sorted((carrier, version) for carrier in CARRIERS) for version in range(len(KILLS))
    }


def test_the_asset_makes_the_topic_and_tells_what_it_sent(kafka: str, tmp_path: Path) -> None:
    topic, table = f"t-{uuid.uuid4()}", tmp_path / "summary"
    definitions = feed_definitions(table, feed(topic, partitions=2))
    kafka_resource = KafkaResource(bootstrap_servers=kafka)
    found = dg.Definitions.merge(definitions, dg.Definitions(resources={"kafka": kafka_resource}))
    replace(table, "2013-01-01", ("UA", 1), ("AA", 2))
    with dg.DagsterInstance.ephemeral() as instance:
        first, second = (found.resolve_job_def("publish_summary_job").execute_in_process(instance=instance) for _ in range(2))
    (event,), (again,) = (run.asset_materializations_for_node("publish_summary") for run in (first, second))
    assert event.asset_key == dg.AssetKey(["topic", topic])
    assert {name: event.metadata[name].value for name in ("version", "rows_sent", "tombstones")} == {
        "version": 0,
        "rows_sent": 2,
        "tombstones": 0,
    }
    assert (again.metadata["rows_sent"].value, again.metadata["after_version"].value) == (0, 0)
    admin = KafkaAdmin(KafkaOptions(kafka))
    assert admin.partitions(topic) == 2
    assert admin.topic_config(topic)["cleanup.policy"] == "compact"
    admin.close()
    assert by_version(kafka, topic) == {0: [("AA", 2), ("UA", 1)]}


def test_a_topic_that_does_not_exist_is_named(kafka: str, tmp_path: Path) -> None:
    replace(tmp_path / "t", "2013-01-01", ("UA", 1))
    with pytest.raises(Exception, match=r"topic 'nowhere-.*' does not exist. Nothing was read or written"):
        publish_table(tmp_path / "t", feed(f"nowhere-{uuid.uuid4()}"), KafkaOptions(kafka))


def test_a_topic_made_anew_gets_all_rows_again(kafka: str, tmp_path: Path) -> None:
    topic, table, options = f"t-{uuid.uuid4()}", tmp_path / "t", KafkaOptions(kafka)
    how = feed(topic, partitions=1)
    replace(table, "2013-01-01", ("UA", 1))
    assert publish_table(table, how, options).rows == 1
    admin = KafkaAdmin(options)
    admin.delete_topic(topic)
    admin.close()
    assert publish_table(table, how, options).rows == 1
    assert by_version(kafka, topic) == {0: [("UA", 1)]}
