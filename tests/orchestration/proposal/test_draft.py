import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from consumers.types import RECORD_COLUMNS
from orchestration.proposal.draft import Draft, draft

BEGAN = datetime(2024, 3, 1, tzinfo=UTC)


def records(values: Sequence[Any], seconds: float = 600.0) -> pa.RecordBatch:
    """Records `seconds` apart; a value that is not bytes is written as JSON."""
    rows = [
        {
            "partition": 0,
            "offset": i,
            "timestamp": BEGAN + timedelta(seconds=seconds * i),
            "key": b"k%d" % (i % 3),
            "value": value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
            "headers": None,
        }
        for i, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, RECORD_COLUMNS)


def drafted(values: Sequence[Any], total: int | None = None, seconds: float = 600.0, now: datetime = BEGAN) -> Draft:
    return draft("t", records(values, seconds), len(values) if total is None else total, 1, now)


def column(values: Sequence[Any], name: str = "a") -> tuple[str, bool]:
    """The type and nullability that are proposed for a field with these values."""
    found = drafted([{name: value} for value in values]).config.columns[name]
    return found.type, found.nullable


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "integer"),
        (-40_000_000, "long"),
        (2**40, "long"),
        (10**30, "decimal(38,0)"),
        (1.5, "double"),
        (True, "boolean"),
        ("one", "string"),
        ("2013-01-01", "date"),
        ("2013-01-01T10:00:00Z", "timestamp"),
        ("2013-01-01T10:00:00", "string"),
        ("13:00", "string"),
    ],
)
def test_the_type_is_the_values(value: Any, kind: str) -> None:
    assert column([value] * 3) == (kind, True)


def test_whole_numbers_and_fractions_are_doubles() -> None:
    assert column([1, 2.5, 3])[0] == "double"


def test_an_id_is_long_however_small_it_is_today() -> None:
    assert column([1, 2, 3], "order_id")[0] == "long"


def test_dates_among_other_texts_are_strings() -> None:
    assert column(["2013-01-01", "soon", "late"])[0] == "string"


def test_a_field_that_was_always_there_is_not_nullable_only_when_many_records_say_so() -> None:
    assert column([1] * 99)[1] and not column([1] * 100)[1]


@pytest.mark.parametrize("gap", [{}, {"a": None}])
def test_a_field_that_was_missing_or_null_is_nullable_and_that_is_said(gap: dict[str, None]) -> None:
    found = drafted([{"a": 1}] * 199 + [gap])
    assert found.config.columns["a"].nullable and found.columns["a"].note == "missing or null in 1 of 200"


def test_types_in_conflict_are_named_with_an_example() -> None:
    found = drafted([{"a": 1}] * 9 + [{"a": "many"}])
    assert found.config.columns["a"].type == "integer"
    assert found.columns["a"].note == 'CONFLICT: 1 value is a string, such as "many": dead letters'


def test_nested_fields_become_columns_with_a_path() -> None:
    found = drafted([{"customer": {"address": {"city": "Oslo"}}, "city": "Bergen"}]).config.columns
    assert {name: each.path for name, each in found.items()} == {"customer_address_city": "customer.address.city", "city": None}


def test_names_that_spark_could_not_tell_apart_are_numbered() -> None:
    assert list(drafted([{"a_b": 1, "A": {"B": 2}}]).config.columns) == ["a_b", "A_B_2"]


def test_a_name_that_no_column_can_have_is_mended() -> None:
    assert drafted([{"order-no.": 1, "2nd-try": 2}]).config.columns["nd_try"].path == "2nd-try"


def test_lists_are_left_out_and_that_is_said() -> None:
    found = drafted([{"a": 1, "items": [{"id": 7}]}])
    assert list(found.config.columns) == ["a"] and any("path: items[0]" in line for line in found.seen)


def test_a_field_that_is_an_object_in_some_records_only_is_a_column_where_it_is_most_often() -> None:
    found = drafted([{"a": {"b": 1}}] * 5 + [{"a": 2}])
    assert {each.path for each in found.config.columns.values()} == {"a.b"}


def test_what_would_be_a_dead_letter_is_counted_by_the_consumers_own_decoder() -> None:
    found = drafted([{"a": 1}] * 8 + [b"{", {"a": "x"}])
    assert "8 values fit this schema, 2 would be dead letters:" in found.seen


def test_windows_are_days_by_the_records_timestamp() -> None:
    window = drafted([{"a": 1}] * 300).config.window
    assert (window.every, window.field, window.first) == ("day", None, "2024-03-01")


def test_partitions_end_with_data_that_ended_long_ago() -> None:
    for days, last in ((300, None), (400, "2024-03-03")):
        assert drafted([{"a": 1}] * 300, now=BEGAN + timedelta(days=days)).config.window.last == last


def test_a_topic_with_gigabytes_a_day_gets_windows_of_an_hour() -> None:
    assert drafted([{"a": "x" * 1000}] * 100, total=10**7).config.window.every == "hour"


def test_timestamps_of_one_load_give_way_to_a_column_whose_times_spread() -> None:
    values = [{"id": i, "at": (BEGAN - timedelta(days=i)).isoformat()} for i in range(100)]
    found = drafted(values, seconds=0.01)
    assert (found.config.window.field, found.config.window.first) == ("at", "2023-11-23")
    assert "look like the time of loading" in found.window_why


def test_a_column_of_times_near_the_records_own_is_no_reason() -> None:
    values = [{"at": (BEGAN + timedelta(seconds=i)).isoformat()} for i in range(100)]
    assert drafted(values, seconds=1).config.window.field is None


def test_large_records_make_smaller_batches() -> None:
    assert drafted([{"a": "x" * 100_000}] * 10).config.batch.max_records < 1000
    assert drafted([{"a": 1}] * 10).config.batch.max_records == 200_000


@pytest.mark.parametrize(
    ("value", "kind"), [(b"plain text", "string"), (b"\x00\x00\x00\x00\x01avro\xff", "binary"), (b"[1]", "string")]
)
def test_what_is_not_json_is_one_column(value: bytes, kind: str) -> None:
    found = drafted([value] * 3)
    assert found.config.format == "raw" and [each.type for each in found.config.columns.values()] == [kind]


def test_tombstones_and_keys_are_counted() -> None:
    seen = drafted([{"a": 1}, None, {"a": 2}, None]).seen
    assert "2 tombstones (50.0%)" in seen and "3 distinct keys" in seen
