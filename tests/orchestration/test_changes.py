from pathlib import Path
from typing import Any

import pytest

from consumers.config import Consumer
from consumers.errors import StorageError
from orchestration.changes import Change, changes
from orchestration.testing import run_consumer
from tests.orchestration.staged_tables import consumer_in

SCHEMA = {"id": "long", "small": "integer", "at": "timestamp", "name": "string"}
RECORD: Any = {
    "value": {"id": 1, "small": 2, "at": "2024-02-02T10:00:00Z", "name": "anna"},
    "timestamp": "2024-03-03T10:00:00Z",
}


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """The folder of a consumer's tables, in which a row is."""
    run_consumer(consumer_in(tmp_path, schema=SCHEMA), [RECORD], folder=tmp_path)
    return tmp_path


def changed(folder: Path, **attributes: Any) -> Consumer:
    return consumer_in(folder, **{"schema": SCHEMA, **attributes})


def only(consumer: Consumer) -> Change:
    [change] = changes(consumer)
    return change


def test_without_a_table_nothing_is_a_change(tmp_path: Path) -> None:
    assert changes(consumer_in(tmp_path)) == []


def test_a_definition_that_stands_changes_nothing(staged: Path) -> None:
    assert changes(changed(staged)) == []


def test_a_new_column_is_safe_and_ingestion_agrees(staged: Path) -> None:
    wider = changed(staged, schema=SCHEMA | {"tip": "double"})
    change = only(wider)
    assert change.level == "safe" and change.what == "column 'tip' (double) is new"
    assert run_consumer(wider, [RECORD, RECORD], folder=staged).table["tip"].null_count == 2


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (SCHEMA | {"small": "long"}, "column 'small' was integer and is long"),
        (SCHEMA | {"id": "integer"}, "column 'id' was long and is integer"),
        (SCHEMA | {"at": "date"}, "column 'at' was timestamp and is date"),
        ({key: SCHEMA[key] for key in SCHEMA if key != "name"}, "column 'name' (string) is gone"),
    ],
)
def test_other_types_and_columns_that_go_need_a_rebuild_and_ingestion_agrees(staged: Path, schema: Any, what: str) -> None:
    narrower = changed(staged, schema=schema)
    change = only(narrower)
    assert (change.level, change.what) == ("rebuild", what) and "shadow_orders" in change.do
    with pytest.raises(StorageError, match="shadow_orders"):
        run_consumer(narrower, [RECORD, RECORD], folder=staged)


def test_bytes_may_be_kept_from_now_on_and_not_the_other_way_round(staged: Path) -> None:
    keeping = changed(staged, keep_raw=True)
    assert only(keeping).level == "safe"
    assert run_consumer(keeping, [RECORD, RECORD], folder=staged).table["_value"].null_count == 1
    assert only(changed(staged)).level == "rebuild"
    with pytest.raises(StorageError, match="shadow_orders"):
        run_consumer(changed(staged), [RECORD] * 3, folder=staged)


def test_a_wider_type_is_said_to_lose_nothing(staged: Path) -> None:
    assert "loses nothing" in only(changed(staged, schema=SCHEMA | {"small": "long"})).means
    assert "dead letters of what does not fit" in only(changed(staged, schema=SCHEMA | {"id": "integer"})).means


def test_another_size_of_window_needs_a_rebuild(staged: Path) -> None:
    change = only(changed(staged, window="hour"))
    assert change.level == "rebuild" and change.what == "windows were one day and are one hour"


def test_another_field_of_the_window_is_seen_in_the_rows(staged: Path) -> None:
    change = only(changed(staged, window={"every": "day", "field": "at"}))
    assert change.level == "rebuild" and "windows go by 'at' now" in change.what


def test_another_topic_is_allowed_and_told(staged: Path) -> None:
    change = only(changed(staged, topic="other"))
    assert change.level == "note" and change.what == "the topic was orders and is other"


def test_a_column_that_is_read_otherwise_is_told(staged: Path) -> None:
    change = only(changed(staged, schema=SCHEMA | {"name": {"type": "string", "path": "user.name"}}))
    assert change.level == "note" and "a backfill" in change.means


def test_several_changes_are_all_named(staged: Path) -> None:
    found = changes(changed(staged, schema={"id": "string", "tip": "double"}, window="hour"))
    assert [change.level for change in found].count("rebuild") == 5 and len(found) == 6
