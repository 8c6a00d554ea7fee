"""Which records belong to a table, and what a transform makes of them."""

from typing import Any

import pyarrow as pa
import pytest

from consumers.errors import ConfigError, TaskFailed
from consumers.formats import Decoded
from consumers.processing.decoding import decoder_for
from consumers.types import HEADERS
from tests.consumers.parts import config, records

HERE = "tests.consumers.processing.transforms"
CARRIERS = {"schema": {"carrier": "string", "n": {"type": "byte", "nullable": False}}}
FLIGHTS = [
    b'{"carrier":"UA","n":1}',
    b'{"carrier":"AA","n":2}',
    b'{"n":3}',
    b'{"carrier":null,"n":4}',
    b'{"carrier":"B6","n":5}',
    None,
]


def decode(values: list[bytes | None], told: list[Any] | None = None, **changes: Any) -> Decoded:
    return decoder_for(config(**changes)).decode(records(values, first=10, headers=told))


def found(decoded: Decoded) -> tuple[list[int], list[int]]:
    """The indices of rows and of rejects."""
    return decoded.indices.to_pylist(), [reject.index for reject in decoded.rejects]


def test_only_the_records_with_these_values_belong_to_the_table() -> None:
    decoded = decode(FLIGHTS, **CARRIERS, where={"column": "carrier", "in": ["UA", "B6"]})
    assert found(decoded) == ([0, 4], [])
    assert decoded.rows["n"].to_pylist() == [1, 5]


def test_all_others_belong_to_the_table_of_the_rest_tombstones_included() -> None:
    assert found(decode(FLIGHTS, **CARRIERS, where={"column": "carrier", "not_in": ["UA", "B6"]})) == ([1, 2, 3, 5], [])


@pytest.mark.parametrize(("kind", "wanted"), [("integer", 7), ("boolean", False), ("byte", -1)])
def test_values_are_of_the_columns_type(kind: str, wanted: int) -> None:
    values = [b'{"a":7}', b'{"a":false}', b'{"a":-1}']
    decoded = decode(
        [v if kind != "boolean" or b"false" in v else b'{"a":true}' for v in values],
        schema={"a": kind},
        where={"column": "a", "in": [wanted]},
    )
    assert decoded.rows["a"].to_pylist() == [wanted]


def test_an_invalid_record_that_says_that_it_belongs_elsewhere_is_passed_over() -> None:
    values = [b'{"carrier":"AA","n":"bad"}', b'{"carrier":"UA","n":"bad"}', b'{"n":"bad"}', b"junk", b'{"carrier":7,"n":1}']
    assert found(decode(values, **CARRIERS, where={"column": "carrier", "in": ["UA"]})) == ([], [1, 3, 4])
    assert found(decode(values, **CARRIERS, where={"column": "carrier", "not_in": ["UA"]})) == ([], [0, 2, 3, 4])


def test_a_tombstone_belongs_where_its_key_or_header_says() -> None:
    told = pa.array([[{"key": "h", "value": b"x"}], [{"key": "h", "value": b"y"}], None], HEADERS).to_pylist()
    schema = {"a": "long", "k": {"type": "string", "key": True}, "h": {"type": "string", "header": "h"}}
    assert found(decode([None] * 3, told, schema=schema, where={"column": "k", "in": ["k1"]})) == ([1], [])
    assert found(decode([None] * 3, told, schema=schema, where={"column": "h", "in": ["x"]})) == ([0], [])
    assert found(decode([None] * 3, told, schema=schema, where={"column": "h", "not_in": ["x"]})) == ([1, 2], [])
    assert found(decode([None] * 3, told, schema=schema, where={"column": "a", "in": [1]})) == ([], [])


def test_a_transform_makes_the_columns_of_the_schema_of_those_that_it_reads() -> None:
    decoded = decode(
        [b'{"euros":"1.5","t":{"at":"2020-02-02T01:00:00+02:00"}}', b"junk", None, b'{"euros":"2"}'],
        schema={"day": "date", "cents": {"type": "integer", "nullable": False}, "offset": "long"},
        transform={
            "function": f"{HERE}.parsed",
            "columns": {"euros": "decimal(5,2)", "at": {"type": "timestamp", "path": "t.at"}},
        },
        window={"every": "day", "field": "day"},
    )
    assert [{**row, "day": str(row["day"])} for row in decoded.rows.to_pylist()] == [
        {"day": "2020-02-01", "cents": 150, "offset": 10},
        {"day": "None", "cents": None, "offset": None},
        {"day": "None", "cents": 200, "offset": 13},
    ]
    assert found(decoded) == ([0, 2, 3], [1])


def test_a_transform_without_columns_of_its_own_is_given_those_of_the_schema() -> None:
    decoded = decode([b'{"a":1}', b'{"a":2}'], transform=f"{HERE}.doubled")
    assert decoded.rows.to_pylist() == [{"a": 2}, {"a": 4}]


def test_a_transform_sees_only_the_records_that_belong_to_the_table() -> None:
    decoded = decode([b'{"a":1}', b'{"a":2}', b'{"a":3}'], where={"column": "a", "in": [2, 4]}, transform=f"{HERE}.without_odd")
    assert found(decoded) == ([1], [])


@pytest.mark.parametrize("function", ["without_odd", "one_by_one"])
def test_records_that_a_transform_calls_invalid_are_rejected_with_its_reason(function: str) -> None:
    decoded = decode([b'{"a":2}', b'{"a":3}', b"junk", None, b'{"a":5}', b'{"a":6}'], transform=f"{HERE}.{function}")
    assert found(decoded) == ([0, 3, 5], [1, 2, 4])
    assert decoded.rows["a"].to_pylist() == [2, None, 6]
    assert [reject.reason for reject in decoded.rejects][::2] == ["3 is odd", "5 is odd"]


def test_what_a_transform_returns_has_to_fit_the_schema_row_by_row() -> None:
    decoded = decode(
        [b'{"a":2}', b'{"a":3}', b'{"a":0}', b'{"a":4}'],
        schema={"half": {"type": "short", "nullable": False}, "inverse": "double"},
        transform={"function": f"{HERE}.halved", "columns": {"a": "long"}},
    )
    assert decoded.rows.to_pylist() == [{"half": 1, "inverse": 0.5}, {"half": 2, "inverse": 0.25}]
    assert [(r.index, r.reason) for r in decoded.rejects] == [
        (1, "column `half`: required, and the transform made it null"),
        (2, "column `inverse`: not a finite number"),
    ]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("shorter", "it returned 1 rows for 2"),
        ("other_columns", "it returned no column 'a'"),
        ("as_text", "its column 'a' is string, and the schema has int64"),
        ("as_list", "it returned a list instead of a pyarrow Table"),
        ("broken", "KeyError: 'b'"),
    ],
)
def test_a_transform_that_fails_ends_the_run_with_its_name_topic_and_offsets(function: str, message: str) -> None:
    with pytest.raises(TaskFailed) as failed:
        decode([b'{"a":1}', b'{"a":2}'], transform=f"{HERE}.{function}")
    assert message in str(failed.value)
    assert f"{HERE}.{function}" in str(failed.value)
    assert "topic t, partitions and offsets 0 [10, 12)" in str(failed.value)


def test_a_transform_is_not_called_where_there_is_nothing_to_transform() -> None:
    assert decode([b"junk", None], transform=f"{HERE}.broken").rows.to_pylist() == [{"a": None}]


@pytest.mark.parametrize(
    ("function", "message"),
    [("nowhere.f", "cannot import 'nowhere'"), (f"{HERE}.f", "has no function 'f'"), (f"{HERE}.not_a_function", "has no")],
)
def test_a_transform_that_is_not_there_is_named(function: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        decoder_for(config(transform=function))
