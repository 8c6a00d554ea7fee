"""From the in-memory broker to tables: columns from everywhere, one topic into several tables, and a transform."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from consumers.brokers.memory import MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer, Where
from consumers.errors import TaskFailed
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.staging.log import StagedCommit
from consumers.staging.positions import committed_positions
from tests.consumers.parts import DAY_MS, TP, config, contents

HERE = "tests.consumers.processing.transforms"


def cluster_with(*values: Any, headers: Mapping[str, bytes] | None = None) -> MemoryCluster:
    """A topic with these values (None: a tombstone), whose keys are k0, k1 and so on."""
    cluster = MemoryCluster(ManualClock(DAY_MS / 1000))
    cluster.create_topic("t")
    producer = MemoryProducer(cluster)
    for i, value in enumerate(values):
        written = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        producer.send("t", written, b"k%d" % i, headers=list((headers or {}).items()))
    producer.close()
    return cluster


def consumer(folder: Path, name: str = "c", **changes: Any) -> Consumer:
    return Consumer(name=name, config=config(**changes), staged=folder / name / "staged", dead_letters=folder / name / "dead")


def staged(cluster: MemoryCluster, parts: Consumer) -> list[StagedCommit]:
    commits: list[StagedCommit] = []
    stage_from(
        MemoryConsumer(cluster, "t", parts.group),
        parts,
        "m",
        threading.Event(),
        Limits(until_caught_up=True),
        commits.append,
        Surroundings(clock=cluster.clock),
    )
    return commits


def rows(path: Path, *columns: str) -> list[dict[str, Any]]:
    table: pa.Table = contents(path).sort_by("_offset")
    found: list[dict[str, Any]] = table.select(columns).to_pylist()
    return found


def test_columns_come_from_inside_the_value_from_headers_and_from_the_key(tmp_path: Path) -> None:
    schema = {
        "id": {"type": "long", "path": "order.items[0].id", "nullable": False},
        "trace": {"type": "integer", "header": "trace"},
        "who": {"type": "string", "key": True},
    }
    good = {"order": {"items": [{"id": 7}, {"id": 8}]}}
    cluster = cluster_with(good, {"order": {"items": []}}, None, {"order": 5}, headers={"trace": b"12"})
    parts = consumer(tmp_path, schema=schema)
    [commit] = staged(cluster, parts)
    assert rows(parts.staged, "id", "trace", "who", "_tombstone") == [
        {"id": 7, "trace": 12, "who": "k0", "_tombstone": False},
        {"id": None, "trace": 12, "who": "k2", "_tombstone": True},
    ]
    assert rows(parts.dead_letters, "_offset", "_reason") == [
        {"_offset": 1, "_reason": "required field `order.items[0].id` is missing or null"},
        {"_offset": 3, "_reason": "Expected `object`, got `int` - at `$.order`"},
    ]
    assert (commit.rows, commit.dead_letters, commit.skipped) == (2, 2, 0)


def test_one_topic_fills_several_tables_each_record_in_one_of_them(tmp_path: Path) -> None:
    cluster = cluster_with({"a": 1}, {"a": 2}, {"a": 1}, {}, None, b"junk", {"a": 3})
    ones = consumer(tmp_path, "ones", where={"column": "a", "in": [1]})
    rest = consumer(tmp_path, "rest").model_copy(update={"config": config(where={"column": "a", "not_in": [1]})})
    commits = {parts.name: staged(cluster, parts) for parts in (ones, rest)}
    assert [row["_offset"] for row in rows(ones.staged, "_offset")] == [0, 2]
    assert [row["_offset"] for row in rows(rest.staged, "_offset")] == [1, 3, 4, 6]
    assert [rows(parts.dead_letters, "_offset") for parts in (ones, rest)] == [[{"_offset": 5}]] * 2
    for parts in (ones, rest):
        assert committed_positions(parts.staged, parts.name, "t", 1) == {TP: 7}
    assert [commit.skipped for commit in (*commits["ones"], *commits["rest"])] == [4, 2]


def test_positions_pass_records_that_belong_to_no_table(tmp_path: Path) -> None:
    parts = consumer(tmp_path, where={"column": "a", "in": [9]})
    [commit] = staged(cluster_with({"a": 1}, {"a": 2}), parts)
    assert (commit.rows, commit.skipped, commit.ranges[TP].end) == (0, 2, 2)
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 2}
    assert parts.config.where == Where.model_validate({"column": "a", "in": [9]})


def test_a_transformed_column_places_a_record_in_its_window(tmp_path: Path) -> None:
    parts = consumer(
        tmp_path,
        schema={"day": "date", "cents": "integer", "offset": "long"},
        transform={"function": f"{HERE}.parsed", "columns": {"euros": "decimal(5,2)", "at": "timestamp"}},
        window={"every": "day", "field": "day"},
    )
    first, second = ({"euros": "1.50", "at": f"2020-02-0{day}T12:00:00Z"} for day in (1, 2))
    [commit] = staged(cluster_with(first, {"euros": 1}, second), parts)
    assert {window: change.rows for window, change in commit.windows.items()} == {"2020-02-01": 1, "2020-02-02": 1}
    assert rows(parts.staged, "cents", "offset") == [{"cents": 150, "offset": 0}, {"cents": 150, "offset": 2}]
    assert [row["_offset"] for row in rows(parts.dead_letters, "_offset")] == [1]


def test_records_that_a_transform_refuses_are_dead_letters_with_their_own_bytes(tmp_path: Path) -> None:
    parts = consumer(tmp_path, transform=f"{HERE}.without_odd")
    staged(cluster_with({"a": 2}, {"a": 3}, None), parts)
    assert rows(parts.staged, "a", "_offset") == [{"a": 2, "_offset": 0}, {"a": None, "_offset": 2}]
    assert rows(parts.dead_letters, "_value", "_key", "_reason") == [
        {"_value": b'{"a": 3}', "_key": b"k1", "_reason": "3 is odd"}
    ]


def test_a_transform_that_fails_stops_the_consumer_with_nothing_committed(tmp_path: Path) -> None:
    parts = consumer(tmp_path, transform=f"{HERE}.broken")
    with pytest.raises(TaskFailed, match=r"transforms\.broken failed at transforms\.py:\d+ on topic t, .* 0 \[0, 2\): KeyError"):
        staged(cluster_with({"a": 2}, {"a": 3}), parts)
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 0}
