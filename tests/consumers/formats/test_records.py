"""Columns of the key and of headers beside those of the value."""

# ruff: noqa: E501 - tables of values read better with one kind a line

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.config import Column
from consumers.formats import Decoded, JsonDecoder, RecordDecoder
from consumers.formats.records import last_header
from consumers.formats.text import TextDecoder
from consumers.types import HEADERS
from tests.consumers.parts import records

NO = object()  # rejected
Header = tuple[str, bytes | None]


def headers(*each: Sequence[Header] | None) -> list[Any]:
    return [None if given is None else [{"key": k, "value": v} for k, v in given] for given in each]


def decode(values: Sequence[bytes | None], told: list[Any] | None = None, **columns: Column) -> Decoded:
    reader = RecordDecoder("json", {"a": Column(type="long"), **columns})
    return reader.decode(records(values, headers=told))


def reasons(decoded: Decoded) -> dict[int, str]:
    return {reject.index: reject.reason for reject in decoded.rejects}


TABLE: list[tuple[str, bytes, Any]] = [
    *[("string", text, value) for text, value in {b"x": "x", b"": "", "é".encode(): "é", b"\xff": NO, b'"x"': '"x"', b"null": "null"}.items()],
    *[("binary", text, text) for text in (b"", b"\xff\0")],
    *[("boolean", text, value) for text, value in {b"true": True, b"false": False, b"True": NO, b"1": NO, b"null": NO, b"": NO}.items()],
    *[("long", text, value) for text, value in {
        b"12": 12, b"-3": -3, b"": NO, b"null": NO, b"1.0": NO, b" 1": NO, b"1\n": NO, b"01": NO, b"+1": NO, b"1,": NO, b'1,"x":2': NO, b"true": NO,
        b'"1"': NO, b"{}": NO, b"1}{": NO, b"9223372036854775808": NO, b"\xff": NO, b"NaN": NO, b"-": NO,
    }.items()],
    ("byte", b"127", 127), ("byte", b"128", NO),
    *[("double", text, value) for text, value in {b"1.5": 1.5, b"1e2": 100.0, b"NaN": NO, b"Infinity": NO, b"1e999": NO, b"": NO}.items()],
    *[("decimal(5,2)", text, value) for text, value in {b"1.5": Decimal("1.50"), b"1.555": NO, b"1000": NO, b"": NO}.items()],
    *[("date", text, value) for text, value in {b"2013-01-31": date(2013, 1, 31), b"2013-1-1": NO, b"": NO, b"null": NO, b"0000-01-01": NO}.items()],
    *[("timestamp", text, value) for text, value in {
        b"2013-01-01T01:00:00+01:00": datetime(2013, 1, 1, tzinfo=UTC), b"2013-01-01T00:00:00": NO, b"": NO, b'2013-01-01T00:00:00Z"': NO,
    }.items()],
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "wanted"), TABLE, ids=[f"{k}-{t!r}" for k, t, _ in TABLE])
def test_a_text_is_taken_exactly_or_rejected_whatever_stands_beside_it(kind: str, text: bytes, wanted: Any) -> None:
    values, bad = TextDecoder("c", kind).decode(pa.array([None, text, None, b"\xfe"], pa.binary()))
    assert values.to_pylist()[:3] == [None, None if wanted is NO else wanted, None]
    assert set(bad) - {3} == ({1} if wanted is NO else set())
    assert all(bad.values())


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["long", "double", "boolean", "timestamp", "decimal(5,2)"]),
    st.text('0123456789-+.eE,:"{}truefalsn TZ', max_size=12),
)
def test_a_text_is_of_a_type_exactly_when_it_is_such_a_json_value(kind: str, text: str) -> None:
    values, bad = TextDecoder("c", kind).decode(pa.array([text.encode()], pa.binary()))
    if not bad:
        quoted = f'"{text}"' if kind == "timestamp" else text
        same = JsonDecoder({"c": Column(type=kind)}).decode(pa.array([f'{{"c":{quoted}}}'.encode()], pa.binary()))
        assert values.to_pylist() == same.rows["c"].to_pylist() != [None]


def test_a_header_column_is_the_last_value_of_that_header() -> None:
    told = headers([("h", b"1"), ("g", b"x"), ("h", b"2")], None, [], [("h", b"3"), ("h", None)], [("H", b"4")], [("h", b"5")])
    decoded = decode([b"{}"] * 6, told, h=Column(type="integer", header="h"))
    assert decoded.rows["h"].to_pylist() == [2, None, None, None, None, 5]
    assert decoded.rejects == ()


def test_headers_of_a_slice_are_its_own() -> None:
    given = pa.array(headers([("h", b"0")], None, [("x", b""), ("h", b"2")], [("h", b"3")]), HEADERS)
    assert last_header(given.slice(1, 2), "h").to_pylist() == [None, b"2"]


def test_a_key_column_is_the_key_in_the_order_of_the_schema() -> None:
    reader = RecordDecoder("json", {"k": Column(type="string", key=True), "a": Column(type="long")})
    decoded = reader.decode(records([b'{"a":1,"k":"no"}', b"junk", b'{"a":3}']))
    assert decoded.rows.to_pylist() == [{"k": "k0", "a": 1}, {"k": "k2", "a": 3}]
    assert decoded.rows.schema.names == reader.schema.names == ["k", "a"]


def test_what_cannot_be_read_is_rejected_with_a_reason_that_names_the_column() -> None:
    told = headers([("h", b"1")], [("h", b"one")], [("h", b"\xff")], [("h", b"999")], [("h", b"2")])
    decoded = decode(
        [b'{"a":1}', b"{}", b"{}", b"{}", b"junk"], told, h=Column(type="byte", header="h"), k=Column(type="long", key=True)
    )
    assert decoded.indices.to_pylist() == []
    assert set(reasons(decoded)) == {0, 1, 2, 3, 4}
    without_key = decode([b'{"a":1}', b"{}", b"{}", b"{}", b"junk"], told, h=Column(type="byte", header="h"))
    assert without_key.rows.to_pylist() == [{"a": 1, "h": 1}]
    why = reasons(without_key)
    assert why[1] == "column `h`: the header `h`: not a byte"
    assert why[2] == "column `h`: the header `h`: not UTF-8: invalid start byte at byte 0"
    assert why[3].startswith("column `h`: the header `h`: ") and "999" not in why[4] and "column" not in why[4]


def test_a_required_header_must_be_there() -> None:
    decoded = decode(
        [b"{}", b"{}", b"{}"], headers([("h", b"")], [("h", None)], None), h=Column(type="string", header="h", nullable=False)
    )
    assert decoded.rows["h"].to_pylist() == [""]
    assert reasons(decoded) == dict.fromkeys([1, 2], "column `h`: the header `h`: missing")


def test_a_tombstone_has_its_key_and_headers_required_or_not() -> None:
    required = Column(type="long", header="h", nullable=False)
    told = headers(None, [("h", b"7")], [("h", b"x")], [("h", b"8")])
    decoded = decode([None, None, None, b'{"a":1}'], told, k=Column(type="string", key=True), h=required)
    assert decoded.rows.to_pylist() == [
        {"a": None, "k": "k0", "h": None}, {"a": None, "k": "k1", "h": 7}, {"a": 1, "k": "k3", "h": 8},
    ]  # fmt: skip
    assert reasons(decoded) == {2: "column `h`: the header `h`: not a long"}


def test_raw_values_may_have_columns_beside_them() -> None:
    reader = RecordDecoder("raw", {"v": Column(type="binary"), "k": Column(type="binary", key=True)})
    assert reader.decode(records([b"\xff", None])).rows.to_pylist() == [{"v": b"\xff", "k": b"k0"}, {"v": None, "k": b"k1"}]


def test_an_empty_batch_has_no_rows_and_the_schema() -> None:
    decoded = decode([], [], h=Column(type="date", header="h"), k=Column(type="string", key=True))
    assert (decoded.rows.num_rows, decoded.rows.schema.names) == (0, ["a", "h", "k"])
