"""What is a row, what is not, and that neighbours have no say in it. Every probe that ever crashed a reader runs in a subprocess."""

# ruff: noqa: E501 - tables of values read better with one kind a line

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.config import Column
from consumers.formats import JsonDecoder

NO = object()  # rejected


def decoder(**columns: str) -> JsonDecoder:
    return JsonDecoder({name: Column(type=kind) for name, kind in columns.items()})


def array(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


TABLE: list[tuple[str, str, Any]] = [
    *[("string", text, value) for text, value in {
        '"x"': "x", '""': "", "null": None, r'"\u0000"': "\0", r'"\ud83d\ude00"': "😀", r'"\/"': "/", '"é"': "é",
        "1": NO, "true": NO, "{}": NO, '["a"]': NO, r'"\ud800"': NO, r'"\udc00\ud800"': NO, r'"\x"': NO, '"a\nb"': NO, '"a\0b"': NO,
    }.items()],
    *[("boolean", text, value) for text, value in {
        "true": True, "false": False, "null": None, "1": NO, "0": NO, '"true"': NO, "True": NO,
    }.items()],
    *[("byte", text, value) for text, value in {
        "127": 127, "-128": -128, "-0": 0, "128": NO, "-129": NO, "1.0": NO, "1e1": NO, "01": NO, "+1": NO, '"1"': NO, "true": NO,
    }.items()],
    *[("short", text, value) for text, value in {"32767": 32767, "32768": NO, "-32768": -32768, "-32769": NO}.items()],
    *[("integer", text, value) for text, value in {"2147483647": 2**31 - 1, "2147483648": NO, "-2147483649": NO, "1E2": NO}.items()],
    *[("long", text, value) for text, value in {
        str(2**63 - 1): 2**63 - 1, str(-(2**63)): -(2**63), str(2**63): NO, str(-(2**63) - 1): NO, "1.0": NO, "1e3": NO, "NaN": NO,
        "1" * 400: NO, "0x10": NO, "1e400": NO, "": NO,
    }.items()],
    *[("float", text, value) for text, value in {
        "1": 1.0, "1.5": 1.5, "16777217": 16777216.0, "1e-50": 0.0, "3.5e38": NO, "1e400": NO, "NaN": NO, "Infinity": NO, "-Inf": NO,
        '"1"': NO, "1.": NO, ".5": NO,
    }.items()],
    *[("double", text, value) for text, value in {
        "1": 1.0, "1e308": 1e308, "1e-400": 0.0, "9007199254740993": 9007199254740992.0, "1e309": NO, "NaN": NO, "Inf": NO, '"1.5"': NO,
    }.items()],
    # A decimal may also be a string, as many producers write it, with a sign and an exponent; digits are never rounded away.
    *[("decimal(5,2)", text, value) for text, value in {
        "1": Decimal("1.00"), "1.55": Decimal("1.55"), "1.550": Decimal("1.55"), "1e2": Decimal("100"), "1.5e-1": Decimal("0.15"),
        '"1.5"': Decimal("1.5"), '"+1.5"': Decimal("1.5"), '"1e2"': Decimal("100"), "-999.99": Decimal("-999.99"), "-0": Decimal(0),
        "1.555": NO, "1000": NO, "1.5e-3": NO, '"abc"': NO, '""': NO, '" 1.5"': NO, '"1.5 "': NO, "true": NO, "1e400": NO,
        "NaN": NO,
    }.items()],
    ("decimal(5,2)", "99999", NO), ("decimal(38,38)", "1", NO), ("decimal(38,2)", "9" * 36, Decimal("9" * 36)), ("decimal(38,2)", "9" * 37, NO),
    # Times 100 it passes 2**128 once and comes out as an innocent number.
    ("decimal(38,2)", str((2**128 + 5 * 10**37) // 100 + 1), NO),
    *[("date", text, value) for text, value in {
        '"2013-01-31"': date(2013, 1, 31), '"0001-01-01"': date(1, 1, 1), '"9999-12-31"': date(9999, 12, 31), '"2016-02-29"': date(2016, 2, 29),
        '"2013-02-29"': NO, '"0000-12-31"': NO, '"10000-01-01"': NO, '"-0001-01-01"': NO, '"2013-1-1"': NO, '"20130101"': NO, '""': NO,
        '"2013-01-01T00:00:00"': NO, '" 2013-01-01"': NO, "1": NO,
    }.items()],
    *[("timestamp", f'"{text}"', value) for text, value in {
        "2013-01-01T00:00:00Z": utc(2013, 1, 1), "2013-01-01 00:00:00Z": utc(2013, 1, 1), "2013-01-01T01:00:00+01:00": utc(2013, 1, 1),
        "2013-01-01T01:00:00+0100": utc(2013, 1, 1), "2013-01-01T01:00:00+01": utc(2013, 1, 1), "2013-01-01T00:00:00-00:00": utc(2013, 1, 1),
        "2013-01-01T00:00:00.1Z": utc(2013, 1, 1, 0, 0, 0, 100_000), "2013-01-01T00:00:00.123456Z": utc(2013, 1, 1, 0, 0, 0, 123_456),
        "0001-01-01T00:00:00Z": utc(1, 1, 1), "9999-12-31T23:59:59.999999Z": utc(9999, 12, 31, 23, 59, 59, 999_999),
        "2013-01-01T00:00:00.1234567Z": NO, "2013-01-01T00:00:00.123456789Z": NO, "2013-01-01T00:00:00": NO, "2013-01-01": NO,
        "2013-01-01T23:59:60Z": NO, "2013-01-01T24:00:00Z": NO, "2013-01-01T00:00:00+25:00": NO, "2013-01-01T00:00:00+01:60": NO,
        "2013-02-30T00:00:00Z": NO, "0000-01-01T00:00:00Z": NO, "0001-01-01T00:00:00+23:00": NO, "9999-12-31T23:59:59-23:00": NO,
        "10000-01-01T00:00:00Z": NO, " 2013-01-01T00:00:00Z": NO, "2013-01-01T00:00:00,5Z": NO, "2013-01-01t00:00:00z": NO, "1356998400": NO,
    }.items()],
    ("timestamp", "1356998400", NO),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "wanted"), TABLE, ids=[f"{k}-{t[:30]}" for k, t, _ in TABLE])
def test_a_value_is_taken_exactly_or_rejected_alone_and_in_company(kind: str, text: str, wanted: Any) -> None:
    reader = decoder(a=kind)
    record = b'{"a":%s}' % text.encode()
    alone = reader.decode(array(record))
    company = reader.decode(array(b"{}", record, b'{"a":null}', b"junk"))
    assert (alone.rows["a"].to_pylist() or [NO]) == [wanted]
    assert company.indices.to_pylist() == ([0, 2] if wanted is NO else [0, 1, 2])
    assert [r.index for r in alone.rejects] == ([0] if wanted is NO else [])
    assert all(r.reason for r in alone.rejects)


RECORDS: list[tuple[bytes, bool]] = [
    (b"{}", True), (b"  {}  ", True), (b"{}\r\n", True), (b'{"x":[1,{"a":3}]}', True), (b'{"x":1,"x":2}', True), (b'{"x":NaN}', True),
    (b"", False), (b" ", False), (b"null", False), (b"[]", False), (b"[{}]", False), (b"1", False), (b'"x"', False), (b"{", False), (b"}", False),
    (b"{}{}", False), (b"{} {}", False), (b"{}\n{}", False), (b"{},{}", False), (b"{}null{}", False), (b"{}[]{}", False), (b"{}1{}", False),
    (b"{}\0", False), (b"\0{}", False), (b"{}\0}", False), (b"{}\0{}", False), (b'{"a":1\0}', False), (b"\xef\xbb\xbf{}", False),
    (b"\x0c{}", False), (b"{null}", False), (b"{}//{}", False), (b"{/**/}", False), (b'{"a":1,}', False), (b"{'a':1}", False), (b"{a:1}", False),
    (b'{"a":1,"a":2}', False), (b'{"a":1,"\\u0061":2}', False), (b'{"a":null,"a":2}', False), (b'{"a":1}}', False),
    (b'{"\xff":1}', False), (b'{"x":"\xff"}', False), (b'{"x":"\xed\xa0\x80"}', False), (b'{"x":"\\ud800"}', False), (b'{"x":01}', False),
]  # fmt: skip


@pytest.mark.parametrize(("record", "taken"), RECORDS, ids=[repr(r) for r, _ in RECORDS])
def test_a_record_is_one_object_or_it_is_rejected(record: bytes, taken: bool) -> None:
    reader = decoder(a="long")
    assert reader.decode(array(record)).indices.to_pylist() == [0] * taken
    assert (1 in reader.decode(array(b"{}", record, b"{}")).indices.to_pylist()) is taken
    assert (0 in reader.decode(array(record, b"{}{}", b"{")).indices.to_pylist()) is taken


def test_records_that_add_up_to_the_right_number_of_objects_are_not_taken_for_rows() -> None:
    reader = decoder(a="long")
    for values in (
        [b'{"a":1}{"a":2}', b'{"a":3', b"}"],
        [b'{"s":"}', b'{"}'],
        [b"{}{}", b'{"x":', b"1}"],
        [b"{}{}", b""],
        [b"{}{}", b"{}\0}", b"{}"],
    ):
        taken = reader.decode(array(*values)).indices.to_pylist()
        assert taken == [i for i, value in enumerate(values) if value == b"{}"]


def test_required_fields_must_be_there_and_not_null() -> None:
    reader = JsonDecoder({"a": Column(type="long", nullable=False)})
    decoded = reader.decode(array(b'{"a":1}', b"{}", b'{"a":null}', b'{"a":2}'))
    assert decoded.indices.to_pylist() == [0, 3]
    assert [r.reason for r in decoded.rejects] == ["Object missing required field `a`", "Expected `int`, got `null` - at `$.a`"]


def test_an_empty_batch_has_no_rows_and_the_schema() -> None:
    decoded = decoder(a="long", s="string").decode(array())
    assert (decoded.rows.num_rows, len(decoded.indices), decoded.rejects) == (0, 0, ())
    assert decoded.rows.schema.names == ["a", "s"]


def test_a_slice_is_read_from_its_own_offset() -> None:
    reader = decoder(a="long")
    whole = array(b"junk", b'{"a":1}', b'{"a":2}', b"{}{}")
    assert reader.decode(whole.slice(1, 2)).rows["a"].to_pylist() == [1, 2]
    assert reader.decode(whole.slice(1)).rows["a"].to_pylist() == [1, 2]


def test_columns_come_in_the_order_of_the_schema_whatever_the_order_of_the_fields() -> None:
    decoded = decoder(b="long", a="string").decode(array(b'{"a":"x","c":1,"b":1}', b'{"b":2,"a":"y"}'))
    assert decoded.rows.to_pylist() == [{"b": 1, "a": "x"}, {"b": 2, "a": "y"}]


def test_fields_named_like_our_own_columns_are_ignored() -> None:
    decoded = decoder(a="long").decode(array(b'{"a":1,"_topic":"forged","_offset":9}'))
    assert decoded.rows.to_pylist() == [{"a": 1}]


def test_ten_thousand_equal_bad_records_take_seconds() -> None:
    decoded = decoder(a="long").decode(array(*[b"junk"] * 3_000, *[b'{"a":1}'] * 7_000))
    assert (decoded.rows.num_rows, len(decoded.rejects)) == (7_000, 3_000)


_PROBE = """
import sys, threading
import pyarrow as pa
from consumers.config import Column
from consumers.formats import JsonDecoder
n = 200_000
values = [
    b'{"x":' + b"[" * n + b"]" * n + b"}", b'{"x":' * n + b"1" + b"}" * n, b'{"x":' + b"[" * n + b"}", b'{"a":' * n + b"}" * n,
    b'{"s":"' + b"x" * 5_000_000 + b'"}', b"{}null{}", b"null", b"null{}", b"{}null", b"{}" * 1000, b"{" * n, b"[" * n, b'{"a":' + b"1" * n + b"}",
    b'{"o":' * n + b"}" * n, b'{"l":' + b"[" * n + b"]" * n + b"}", b'{"l":[' + b"[1]," * n + b"[1]]}", b'{"o":{"o":' + b"[" * n,
]
def run():
    columns = {"a": Column(type="long"), "s": Column(type="string"), "o": Column(type="long", path="o.o.x")}
    reader = JsonDecoder({**columns, "l": Column(type="long", path="l[1][0]")})
    for together in ([[v] for v in values] + [values]):
        print(reader.decode(pa.array(together, pa.binary())).indices.to_pylist())
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_no_record_can_crash_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *alone, together = done.stdout.split("\n")[:-1]
    assert [i for i, line in enumerate(alone) if line == "[0]"] == json.loads(together) == [0, 1, 4, 15]


ATTACKS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b'"a":1', b'"s":"}"', b'"s":"{"', b'"d":"1.5"', b'"x":{}', b'"x":[{}]', b"null", b"1", b"{}",
    b'{"a":1}', b"\0", b"\n", b" ", b"\\", b"\xef\xbb\xbf", b"\xff", b"NaN", b"//", b"{}{}", b"{}null{}", b'"a":null', b"\\u0000",
    b'"t":"2013-01-01T00:00:00Z"', b'"f":1e5', b'"b":true',
]  # fmt: skip
GOOD = [
    b"{}",
    b'{"a":1}',
    b'{"s":"x","a":2}',
    b'{"d":3.1}',
    b'{"t":"2013-01-01 00:00:00.5+01:00","x":[1,{"a":2}]}',
    b' {"b":true,"f":2} ',
]
ODD = st.lists(st.sampled_from(ATTACKS), max_size=6).map(b"".join)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    text = b"".join(draw(st.lists(st.sampled_from(GOOD), min_size=1, max_size=2)))
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.sampled_from([b"", *ATTACKS])) + text[at + draw(st.integers(0, 3)) :]


RECORD = st.one_of(
    st.sampled_from(GOOD), mutated(), ODD, ODD.map(lambda b: b"{" + b + b"}"), st.binary(max_size=8).map(lambda b: b"{" + b + b"}"),
    st.tuples(st.sampled_from(GOOD), st.integers(0, 20)).map(lambda pair: pair[0][: pair[1]]),
)  # fmt: skip
MIXED = decoder(a="long", s="string", d="decimal(5,2)", t="timestamp", f="double", b="boolean")


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(RECORD, max_size=5))
def test_a_record_is_accepted_exactly_when_it_is_accepted_alone_and_as_the_same_row(values: list[bytes]) -> None:
    decoded = MIXED.decode(array(*values))
    taken = dict(zip(decoded.indices.to_pylist(), decoded.rows.to_pylist(), strict=True))
    assert sorted([*taken, *(r.index for r in decoded.rejects)]) == list(range(len(values)))
    for index, value in enumerate(values):
        alone = MIXED.decode(array(value))
        assert alone.rows.to_pylist() == ([taken[index]] if index in taken else [])
        if index in taken:
            wanted = json.loads(value.strip(b" \t\r\n"))
            assert isinstance(wanted, dict)
            assert [taken[index][name] for name in "asb"] == [wanted.get(name) for name in "asb"]
