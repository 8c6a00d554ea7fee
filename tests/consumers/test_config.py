"""A definition is right, or the message says what is wrong with it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from consumers.config import Consumer, arrow_type
from consumers.errors import ConfigError
from consumers.membership import GroupSettings
from tests.consumers.parts import config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topik": "t"}, "Extra inputs are not permitted"),
        ({"topic": "a b"}, "String should match pattern"),
        ({"topic": ""}, "at least 1 character"),
        ({"topics": ["a"]}, "exactly one of topic, topics and topic_pattern"),
        ({"topic": None}, "exactly one of topic, topics and topic_pattern"),
        ({"topic": None, "topics": []}, "at least 1 item"),
        ({"topic": None, "topics": ["a", "b", "a"]}, "topics: one is named twice"),
        ({"topic": None, "topics": ["a b"]}, "String should match pattern"),
        ({"topic": None, "topic_pattern": "a("}, "no regular expression"),
        ({"format": "avro"}, "'json' or 'raw'"),
        ({"schema": {}}, "at least one column"),
        ({"schema": {"a": "int64"}}, "unknown type 'int64'; known: string"),
        ({"schema": {"a": "decimal(39,2)"}}, "precision is 1 to 38"),
        ({"schema": {"a": "decimal(5,6)"}}, "scale at most the precision"),
        ({"schema": {"a": {"type": "long", "nulable": False}}}, "Extra inputs are not permitted"),
        ({"schema": {"a": {"type": "long", "nullable": "no"}}}, "valid boolean"),
        ({"schema": {"_topic": "long"}}, "'_topic' cannot be a column name"),
        ({"schema": {"a.b": "long"}}, "'a.b' cannot be a column name"),
        ({"schema": {"a": "long", "A": "long"}}, "differ only in case"),
        ({"schema": {"a": "binary"}}, "which JSON cannot hold"),
        ({"format": "raw", "schema": {"a": "long"}}, "one column, of type binary or string"),
        ({"format": "raw", "schema": {"a": "binary", "b": "binary"}}, "one column, of type binary or string"),
        ({"schema": {"a": {"type": "long", "path": "a[x]"}}}, "no path such as"),
        ({"schema": {"a": {"type": "long", "path": "[0].a"}}}, "no path such as"),
        ({"schema": {"a": {"type": "long", "header": ""}}}, "at least 1 character"),
        ({"schema": {"a": {"type": "long", "key": True, "path": "b"}}}, "a column comes from one place"),
        ({"schema": {"a": {"type": "long", "key": True}}}, "at least one column of the record's value"),
        ({"schema": {"a": "long", "b": {"type": "long", "path": "a.b"}}}, "path: 'a.b' (long) and another column's path"),
        ({"schema": {"a": {"type": "long", "path": "x[0]"}, "b": {"type": "long", "path": "x.y"}}}, "path: 'x.y' (long)"),
        ({"schema": {"a": {"type": "long", "path": "x[0]"}, "b": {"type": "string", "path": "x[1]"}}}, "path: 'x[1]' (string)"),
        ({"format": "raw", "schema": {"a": {"type": "string", "path": "b"}}}, "one column, of type binary or string"),
        ({"where": {"column": "b", "in": [1]}}, "where.column: 'b' is no column that is read"),
        ({"where": {"column": "a", "in": []}}, "at least 1 item"),
        ({"where": {"column": "a", "in": [1], "not_in": [2]}}, "one of in and not_in"),
        ({"where": {"column": "a", "in": [2**63]}}, "does not fit into 'a', a long"),
        ({"where": {"column": "a", "in": [True]}}, "True is no value of 'a', a long"),
        ({"where": {"column": "a", "in": [1]}, "split": {"column": "a", "tables": {"x": [1]}}}, "split: leave out where"),
        ({"split": {"column": "a", "tables": {}}}, "at least 1 item"),
        ({"transform": "f"}, "no dotted path to a function"),
        ({"transform": {"function": "m.f", "columns": {}}}, "transform.columns: at least one column"),
        ({"transform": {"function": "m.f", "columns": {"b": "binary"}}}, "transform.columns: 'b' is binary"),
        (
            {"transform": {"function": "m.f", "columns": {"b": "long"}}, "schema": {"a": {"type": "long", "key": True}}},
            "say in transform.columns where it is read",
        ),
        (
            {"transform": {"function": "m.f", "columns": {"b": "long"}}, "where": {"column": "a", "in": [1]}},
            "no column that is read",
        ),
        ({"window": "week"}, "'hour' or 'day'"),
        ({"window": {"every": "day", "field": "b"}}, "'b' is no column"),
        ({"window": {"every": "day", "field": "a"}}, "must be a timestamp or a date"),
        ({"window": {"every": "day", "first": "2013"}}, "a day such as 2013-01-01"),
        ({"start": "yesterday"}, "start is 'earliest', 'latest' or a timestamp"),
        ({"start": "2013-01-01T00:00:00"}, "needs an offset"),
        ({"batch": {"max_records": 0}}, "greater than or equal to 1"),
        ({"batch": {"max_records": "10"}}, "valid integer"),
        ({"batch": {"max_latency_seconds": 0}}, "greater than 0"),
        ({"invalid_records": {"max_ratio": 1.5}}, "less than or equal to 1"),
        ({"on_data_loss": "ignore"}, "'fail' or 'record'"),
        ({"members": 0}, "greater than or equal to 1"),
    ],
)
def test_a_wrong_definition_is_refused_with_a_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        config(**changes)
    assert message in str(refused.value)


def test_short_forms_mean_the_long_ones() -> None:
    long = config(schema={"a": {"type": "long", "nullable": True}}, window={"every": "day"}, start="2013-01-01T00:00:00+00:00")
    assert config(schema={"a": "long"}, window="day", start="2013-01-01T00:00:00Z") == long


def test_type_names_are_arrow_types() -> None:
    assert arrow_type("decimal(10, 2)") == pa.decimal128(10, 2)
    assert arrow_type("timestamp") == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("name", ["Flights", "1a", "a-b", "", "a" * 65])
def test_a_consumer_name_is_plain(name: str) -> None:
    with pytest.raises(ValidationError, match="small letters, digits and _"):
        Consumer(name=name, config=config(), staged=Path("s"), dead_letters=Path("d"))


def test_the_group_follows_from_the_name() -> None:
    assert Consumer(name="flights", config=config(), staged=Path("s"), dead_letters=Path("d")).group == "weir-flights"


def test_membership_is_part_of_the_definition() -> None:
    given = {"protocol": "consumer", "max_poll_seconds": 60, "rack": "a"}
    assert config(membership=given).membership == GroupSettings(protocol="consumer", max_poll_seconds=60, rack="a")
    assert config().membership == GroupSettings()


def test_one_instance_id_cannot_be_that_of_several_members() -> None:
    with pytest.raises(ValidationError, match="one id for 2 members; leave it out, or set members: 1"):
        config(members=2, membership={"instance_id": "i"})


def test_a_pattern_is_of_whole_names_and_never_of_kafkas_own_topics() -> None:
    several = config(topic=None, topic_pattern=".*orders")
    assert several.topics_among(lambda: ["eu.orders", "orders", "orders.dlq", "__orders"]) == ["eu.orders", "orders"]
    assert several.reads == "the topics like .*orders"


def test_topics_that_are_named_are_read_whether_they_are_there_or_not() -> None:
    assert config(topic=None, topics=["b", "a"]).topics_among(list) == ["b", "a"]
    assert config().topics_among(lambda: ["x"]) == ["t"]


def test_a_consumer_of_several_topics_is_asked_for_one_of_them() -> None:
    several = config(topic=None, topics=["a", "b"], membership={"instance_id": "i"}, batch={"max_bytes": 4_000})
    with pytest.raises(ConfigError, match="this consumer reads the topics a, b: one of them has to be named"):
        _ = several.topic
    whole = Consumer(name="c", config=several, staged=Path("s"), dead_letters=Path("d"))
    alone = whole.of_topic("a", sharing=2)
    assert (alone.config.topic, alone.config.batch.max_bytes, alone.config.membership.instance_id) == ("a", 2_000, "i-a")
    assert (alone.name, alone.group, alone.staged, alone.dead_letters) == (
        whole.name,
        whole.group,
        whole.staged,
        whole.dead_letters,
    )
