"""A definition proposed from a topic of a real Kafka, and tried on it."""

from contextlib import closing
from pathlib import Path

import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.clock import SystemClock
from orchestration.catalog import read_folder
from orchestration.proposal.connect import reader
from orchestration.proposal.propose import definition, write
from orchestration.proposal.sample import read
from orchestration.settings import Settings
from orchestration.trial import attempt

pytestmark = pytest.mark.integration


def test_what_is_proposed_from_a_topic_takes_its_records_and_leaves_no_group(kafka: str, tmp_path: Path) -> None:
    settings, clock, topic = Settings(tmp_path, tmp_path, tmp_path, kafka), SystemClock(), "define"
    admin = KafkaAdmin(KafkaOptions(kafka))
    admin.create_topic(topic, 3)
    with KafkaProducer(KafkaOptions(kafka)) as producer:
        for i in range(300):
            producer.send(topic, b'{"id": %d, "at": "2024-01-01T00:00:00Z"}' % i, b"%d" % i, partition=i % 3)
        producer.close(60.0)
    connect, why_not = reader(topic, settings)
    assert connect is not None, why_not
    write(tmp_path, "define", definition(topic, connect, "", clock).text, settings)
    consumer = read_folder(tmp_path, settings)["define"]
    assert {name: column.type for name, column in consumer.config.columns.items()} == {"id": "long", "at": "timestamp"}
    with closing(connect()) as opened:
        sample = read(opened, topic, "latest", 90, 30.0, clock)
    trial = attempt(consumer, sample, int(clock.time() * 1000))
    assert (trial.rows.num_rows, trial.rejected) == (90, ())
    assert trial.rows["_offset"].to_pylist().count(99) == 3
    assert admin.group_offsets(consumer.group, topic) == admin.group_offsets("weir-look", topic) == {}
