"""Values from inside objects and arrays: what is there, what is missing, and that neighbours have no say in it."""

# ruff: noqa: E501 - tables of values read better with one kind a line

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.config import Column
from consumers.formats import JsonDecoder

NO = object()  # rejected


def array(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


def at(path: str, kind: str = "long", nullable: bool = True) -> Column:
    return Column(type=kind, path=path, nullable=nullable)


TABLE: list[tuple[str, str, bytes, Any]] = [
    *[("a.b", "long", record, value) for record, value in {
        b'{"a":{"b":1}}': 1, b'{"a":{"b":null}}': None, b'{"a":{}}': None, b'{"a":null}': None, b"{}": None,
        b'{"b":1,"x":2}': None, b'{"a":{"x":{"b":2},"b":1}}': 1, b'{"a":{"b":1,"x":[{"b":[]}]}}': 1, b'{"a":{"\\u0062":7}}': 7,
        b'{"a":{"B":1}}': None, b'{"a":{"b":"1"}}': NO, b'{"a":{"b":1.0}}': NO, b'{"a":{"b":{}}}': NO,
        b'{"a":5}': NO, b'{"a":"x"}': NO, b'{"a":[]}': NO, b'{"a":[{"b":1}]}': NO, b'{"a":true}': NO,
        b'{"a":{"b":1,"b":2}}': NO, b'{"a":{"b":1},"a":{"b":2}}': NO, b'{"a":null,"a":{"b":2}}': NO, b'{"a":{"b":1}': NO,
        b'{"a":{"b":1}}{"a":{"b":2}}': NO, b'{"a":{"b":9223372036854775808}}': NO,
    }.items()],
    *[("items[0].id", "long", record, value) for record, value in {
        b'{"items":[{"id":1}]}': 1, b'{"items":[{"id":1},{"id":2}]}': 1, b'{"items":[]}': None, b'{"items":null}': None, b"{}": None,
        b'{"items":[null]}': None, b'{"items":[{}]}': None, b'{"items":[null,{"id":2}]}': None, b'{"items":[{"x":[1]},{"id":2}]}': None,
        b'{"items":{}}': NO, b'{"items":{"0":{"id":1}}}': NO, b'{"items":[1]}': NO, b'{"items":[{"id":"1"}]}': NO,
        b'{"items":[[]]}': NO, b'{"items":[{"id":1,"id":2}]}': NO,
        # The elements of an array are all of one type, also those that are not taken.
        b'{"items":[{"id":1},{"id":"2"}]}': NO, b'{"items":[{"id":1},2]}': NO,
    }.items()],
    *[("m[1][0]", "string", record, value) for record, value in {
        b'{"m":[["a"],["b","c"]]}': "b", b'{"m":[["a"],[]]}': None, b'{"m":[["a"]]}': None, b'{"m":[null,null]}': None,
        b'{"m":["a","b"]}': NO, b'{"m":[[1],["b"]]}': NO,
    }.items()],
    *[("t[0]", "timestamp", record, value) for record, value in {
        b'{"t":[]}': None, b'{"t":["2013-01-01T00:00:00"]}': NO, b'{"t":[1]}': NO, b'{"t":["0000-01-01T00:00:00Z"]}': NO,
    }.items()],
    ("p.q.r", "decimal(5,2)", b'{"p":{"q":{"r":"1.5"}}}', Decimal("1.5")), ("p.q.r", "decimal(5,2)", b'{"p":{"q":{"r":1.555}}}', NO),
    ("other", "long", b'{"other":1,"c":2}', 1), ("f.x", "double", b'{"f":{"x":NaN}}', NO), ("f.x", "double", b'{"f":{"x":1e999}}', NO),
]  # fmt: skip


@pytest.mark.parametrize(("path", "kind", "record", "wanted"), TABLE, ids=[f"{p}-{r.decode()[:40]}" for p, _, r, _ in TABLE])
def test_a_nested_value_is_taken_exactly_or_the_record_is_rejected_alone_and_in_company(
    path: str, kind: str, record: bytes, wanted: Any
) -> None:
    reader = JsonDecoder({"c": at(path, kind)})
    alone = reader.decode(array(record))
    company = reader.decode(array(b"{}", record, b'{"x":[]}', b"junk"))
    assert (alone.rows["c"].to_pylist() or [NO]) == [wanted]
    assert company.indices.to_pylist() == ([0, 2] if wanted is NO else [0, 1, 2])
    assert all(reject.reason for reject in alone.rejects)


@pytest.mark.parametrize("path", ["a.b", "items[0].id", "m[0][1]"])
def test_a_required_nested_value_must_be_there(path: str) -> None:
    reader = JsonDecoder({"c": at(path, nullable=False)})
    good = {"a.b": b'{"a":{"b":1}}', "items[0].id": b'{"items":[{"id":1},{}]}', "m[0][1]": b'{"m":[[null,1],null]}'}[path]
    bad = [
        b"{}",
        b'{"a":null,"items":null,"m":null}',
        b'{"a":{},"items":[],"m":[]}',
        b'{"a":{"b":null},"items":[{"id":null}],"m":[[1]]}',
    ]
    decoded = reader.decode(array(bad[0], good, *bad[1:], good))
    assert (decoded.indices.to_pylist(), decoded.rows["c"].to_pylist()) == ([1, 5], [1, 1])
    assert [reject.index for reject in decoded.rejects] == [0, 2, 3, 4]
    assert all("required field" in r.reason or "got `null`" in r.reason for r in decoded.rejects)


def test_a_reason_says_where_in_the_record_the_value_stands() -> None:
    reader = JsonDecoder({"c": at("a.b"), "d": at("l[0].x", "date")})
    decoded = reader.decode(array(b'{"a":{"b":"1"}}', b'{"a":5}', b'{"l":[{"x":"2013-1-1"}]}'))
    first, second, third = (reject.reason for reject in decoded.rejects)
    assert first == "Expected `int | null`, got `str` - at `$.a.b`"
    assert second == "Expected `object | null`, got `int` - at `$.a`"
    assert "at `$.l[0].x`" in third


def test_columns_may_share_an_object_an_array_and_a_value() -> None:
    reader = JsonDecoder(
        {"b": at("a.b"), "flat": Column(type="string"), "again": at("a.b"), "l1": at("a.l[1]"), "l0": at("a.l[0]")}
    )
    decoded = reader.decode(array(b'{"flat":"x","a":{"l":[3,4],"b":1}}'))
    assert decoded.rows.to_pylist() == [{"b": 1, "flat": "x", "again": 1, "l1": 4, "l0": 3}]


def test_many_records_without_a_required_element_are_rejected_and_the_others_are_rows() -> None:
    reader = JsonDecoder({"c": at("l[0]", nullable=False)})
    decoded = reader.decode(array(*[b'{"l":[]}', b'{"l":[1]}', b"junk"] * 2_000))
    assert decoded.indices.to_pylist() == list(range(1, 6_000, 3))
    assert len(decoded.rejects) == 4_000


COLUMNS = {
    "b": at("a.b"),
    "c": at("a.c", "string"),
    "id": at("l[0].id"),
    "x": at("l[1].x", "boolean"),
    "m": at("m[0][1]", "string"),
    "s": Column(type="string"),
}
PATHS: dict[str, list[str | int]] = {
    "b": ["a", "b"],
    "c": ["a", "c"],
    "id": ["l", 0, "id"],
    "x": ["l", 1, "x"],
    "m": ["m", 0, 1],
    "s": ["s"],
}
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none()
        | st.fixed_dictionaries({}, optional={"b": st.none() | st.integers(-5, 5), "c": st.text(max_size=2), "z": st.just([{}])}),
        "l": st.none()
        | st.lists(st.none() | st.fixed_dictionaries({}, optional={"id": st.integers(0, 9), "x": st.booleans()}), max_size=3),
        "m": st.lists(st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3), max_size=2),
        "s": st.text('{}[]",:\\\n', max_size=4),
        "q": st.recursive(
            st.none() | st.integers(),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abl"), inner, max_size=2),
            max_leaves=4,
        ),
    },
).map(lambda record: json.dumps(record).encode())
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"null",
    b"1",
    b"{}",
    b"[]",
    b"{}{}",
    b"\n",
    b"\0",
    b'"a":{"b":1}',
    b'"a":1',
    b'"l":[{"id":1}]',
    b'"l":[',
    b'"b":"1"',
    b'"m":[["a","b"]]',
    b'"m":[[',
    b'"id":2',
    b"\xff",
    b'"a":{"b":1,"b":2}',
    b'"l":[1]',
    b'"l":{}',
    b'"a":[]',
    b"[[]]",
    b'"s":"}"',
]


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    text: bytes = draw(FITTING)
    place = draw(st.integers(0, len(text)))
    return text[:place] + draw(st.sampled_from([b"", *PIECES])) + text[place + draw(st.integers(0, 3)) :]


@st.composite
def inserted(draw: st.DrawFn) -> bytes:
    parts = draw(st.lists(st.sampled_from([p for p in PIECES if p.startswith(b'"') and b":" in p]), max_size=3))
    return b"{" + b",".join(parts) + b"}"


MIXED = JsonDecoder(COLUMNS)
STRICT = JsonDecoder({name: column.model_copy(update={"nullable": name not in ("b", "id")}) for name, column in COLUMNS.items()})


def walked(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(FITTING, FITTING, spoiled(), inserted()), max_size=5), st.booleans())
def test_a_nested_record_is_accepted_exactly_when_it_is_accepted_alone_and_as_what_it_says(
    values: list[bytes], strict: bool
) -> None:
    reader = STRICT if strict else MIXED
    decoded = reader.decode(array(*values))
    taken = dict(zip(decoded.indices.to_pylist(), decoded.rows.to_pylist(), strict=True))
    assert sorted([*taken, *(r.index for r in decoded.rejects)]) == list(range(len(values)))
    for index, value in enumerate(values):
        assert reader.decode(array(value)).rows.to_pylist() == ([taken[index]] if index in taken else [])
        if index in taken:
            record = json.loads(value.strip(b" \t\r\n"))
            assert taken[index] == {name: walked(record, steps) for name, steps in PATHS.items()}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FITTING, min_size=1, max_size=5))
def test_a_record_that_fits_the_schema_is_always_a_row(values: list[bytes]) -> None:
    assert MIXED.decode(array(*values)).rejects == ()
