import json
import re
from pathlib import Path

import pytest
import yaml

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import ConsumerConfig
from consumers.errors import BrokerError, ConfigError
from orchestration.catalog import read_folder
from orchestration.proposal.propose import Definition, definition, write
from orchestration.settings import Settings

CLOCK = ManualClock(1_700_000_000)


def proposed(topic: str, *values: object) -> Definition:
    """The definition for a topic that holds these values, as JSON."""
    cluster = MemoryCluster(CLOCK)
    MemoryAdmin(cluster).create_topic(topic, 2)
    producer = MemoryProducer(cluster)
    for i, value in enumerate(values):
        producer.send(topic, json.dumps(value).encode(), timestamp_ms=1_700_000_000_000 + i * 60_000)
    producer.close()
    return definition(topic, lambda: MemoryConsumer(cluster, topic), "", CLOCK)


def loaded(found: Definition, folder: Path) -> ConsumerConfig:
    """What the catalog makes of the file."""
    write(folder, "clicks", found.text, Settings.load())
    return read_folder(folder, Settings.load())["clicks"].config


def test_a_proposed_file_is_the_definition_that_was_proposed(tmp_path: Path) -> None:
    value = {"id": 1, "price": 10**30, "at": "2024-01-01T00:00:00Z", "user": {"name": "anna: #1"}, "on": True}
    found = proposed("no", *[value] * 120)
    assert found.draft is not None
    assert loaded(found, tmp_path).model_dump() == found.draft.config.model_dump()


def test_the_file_says_what_was_seen() -> None:
    text = proposed("clicks", *[{"a": 1}] * 9, {"a": "many"}).text
    assert "all 10 records of 2 partitions" in text and "CONFLICT" in text


def test_without_a_cluster_the_template_is_a_consumer(tmp_path: Path) -> None:
    found = definition("clicks", None, "No cluster.", CLOCK)
    assert loaded(found, tmp_path).topic == "clicks" and "# No cluster." in found.text


def test_an_empty_topic_gives_the_template_and_says_so() -> None:
    assert "has no record with a value yet" in proposed("clicks").why_plain


def test_what_the_comments_call_defaults_are_the_defaults() -> None:
    """With every comment that is a key taken for one, nothing is different."""
    text = definition("clicks", None, "No cluster.", CLOCK).text
    head, _, defaults = text.partition("these are the defaults.\n")
    keys = re.sub(r"^  # (\w+:)", r"  \1", defaults, flags=re.MULTILINE)
    plain, full = (
        yaml.safe_load(part)["attributes"] for part in (head.rpartition("\n")[0], head.rpartition("\n")[0] + "\n" + keys)
    )
    assert len(full) > len(plain) + 10
    for given in ("description", "owners", "group"):
        full.pop(given)
    assert ConsumerConfig.model_validate(full) == ConsumerConfig.model_validate(plain)


def test_the_keys_that_the_template_names_in_comments_are_keys_of_a_definition() -> None:
    named = set(re.findall(r"^  # (\w+): ", proposed("clicks").text, re.MULTILINE))
    known = {field.alias or name for name, field in ConsumerConfig.model_fields.items()}
    assert {"topics", "topic_pattern", "where", "split", "transform", "keep_raw"} <= named <= known


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    path = write(tmp_path, "clicks", "mine", Settings.load())
    with pytest.raises(ConfigError, match="was left as it is"):
        write(tmp_path, "clicks", "other", Settings.load())
    assert path.read_text() == "mine"


def test_a_name_that_no_consumer_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="small letters"):
        write(tmp_path, "Clicks", "", Settings.load())
    assert not list(tmp_path.iterdir())


def test_a_topic_that_is_not_there_is_an_error_of_the_cluster() -> None:
    with pytest.raises(BrokerError, match="does not exist"):
        definition("clicks", lambda: MemoryConsumer(MemoryCluster(CLOCK), "clicks"), "", CLOCK)
