"""Functions per record, and what columns become for them."""

import pickle
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.errors import InvalidRecord, InvalidValue
from consumers.processing.strategies.each import Record, each, each_kept, each_mapped, records_of
from consumers.processing.strategies.protocol import Rejection
from consumers.processing.strategies.task import Made, Partial, attempt
from consumers.types import HEADERS, RECORD_COLUMNS, OffsetRange
from tests.consumers.parts import DAY_MS, TP, records

U = TypeVar("U")

HEADER_LISTS = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


def reject_b(record: Record) -> bytes | None:
    if record.value == b"b":
        raise InvalidValue("is b")
    return record.value


def called(function: Callable[[pa.RecordBatch], U], batch: pa.RecordBatch) -> Made[U]:
    return attempt(function, batch, {TP: OffsetRange(0, 100)})


def test_what_an_adapter_makes_raises_by_itself_what_is_invalid() -> None:
    with pytest.raises(Partial, match="partition 0, offset 1: is b") as raised:
        each(reject_b)(records([b"a", b"b"]))
    assert raised.value.value == [b"a"]


def test_a_record_has_every_column() -> None:
    batch = records([b"v"], first=7, partition=3, headers=[[{"key": "h", "value": b"x"}, {"key": "none", "value": None}]])
    assert list(records_of(batch)) == [Record(3, 7, DAY_MS, b"k0", b"v", (("h", b"x"), ("none", None)))]


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Record(0, 0, None, None, None).value = b"new"  # type: ignore[misc]


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=3), st.none() | st.integers(0, 2**40), HEADER_LISTS), max_size=6), st.data()
)
def test_columns_become_records_whatever_is_null_or_sliced(
    rows: list[tuple[bytes, int, list[tuple[str, bytes]]]], data: st.DataObject
) -> None:
    headers = [None if pairs is None else [{"key": k, "value": v} for k, v in pairs] for _, _, pairs in rows]
    batch = records([value for value, _, _ in rows], stamps=[stamp for _, stamp, _ in rows], headers=headers)
    start = data.draw(st.integers(0, len(rows)))
    expected = [Record(0, i, stamp, b"k%d" % i, value, tuple(pairs or ())) for i, (value, stamp, pairs) in enumerate(rows)]
    assert list(records_of(batch.slice(start))) == expected[start:]


def test_results_come_in_order_and_invalid_records_apart() -> None:
    made = called(each(reject_b), records([b"a", b"b", None], first=5))
    assert made.value == [b"a", None]
    assert made.rejected == (Rejection(TP, 6, "is b"),)


def test_a_record_may_be_named_invalid_by_its_place_too() -> None:
    def reject(record: Record) -> None:
        raise InvalidRecord(record.partition, record.offset, "no")

    assert called(each(reject), records([b"a"])).rejected == (Rejection(TP, 0, "no"),)


def test_any_other_error_says_at_which_record() -> None:
    def divide(record: Record) -> float:
        return 1 / (record.offset - 6)

    with pytest.raises(ZeroDivisionError) as raised:
        each(divide)(records([b"a"] * 3, first=5))
    assert raised.value.__notes__ == ["partition 0, offset 6"]


def test_a_predicate_gives_a_mask_as_long_as_the_batch() -> None:
    made = called(each_kept(lambda record: reject_b(record) == b"a"), records([b"a", b"b", b"c", b"a"]))
    assert made.value.to_pylist() == [True, False, False, True]
    assert len(made.rejected) == 1


def test_mapping_to_a_value_leaves_the_rest_of_the_record() -> None:
    batch = records([b"a", b"b", None], first=5, headers=[[{"key": "h", "value": b"x"}], [], None])
    made = called(each_mapped(lambda record: (reject_b(record) or b"").upper() or None), batch)
    assert made.value.schema == RECORD_COLUMNS
    assert list(records_of(made.value)) == [
        Record(0, 5, DAY_MS, b"k0", b"A", (("h", b"x"),)),
        Record(0, 7, DAY_MS, b"k2", None),
    ]


def test_mapping_to_a_record_changes_all_but_its_place() -> None:
    def change(record: Record) -> Record | bytes:
        return Record(9, 9, 1, b"new", b"v", (("h", None),)) if record.offset == 6 else b"value alone"

    made = called(each_mapped(change), records([b"a", b"b"], first=5))
    assert made.value.schema == RECORD_COLUMNS
    assert list(records_of(made.value)) == [
        Record(0, 5, DAY_MS, b"k0", b"value alone"),
        Record(0, 6, 1, b"new", b"v", (("h", None),)),
    ]


@pytest.mark.parametrize("adapter", [each, each_kept, each_mapped])
def test_a_batch_without_rows_gives_a_result_without_rows(adapter: type) -> None:
    assert len(adapter(reject_b)(records([], headers=[]))) == 0


@pytest.mark.parametrize("adapter", [each, each_kept, each_mapped])
def test_what_the_adapters_make_crosses_to_another_process(adapter: type) -> None:
    made = pickle.loads(pickle.dumps(adapter(reject_b)))
    assert made == adapter(reject_b)


@pytest.mark.parametrize("adapter", [each, each_kept, each_mapped])
def test_a_table_is_as_good_as_a_batch(adapter: type) -> None:
    parts = [records([b"a"]), records([b"c"], first=1)]
    assert len(adapter(reject_b)(pa.Table.from_batches(parts))) == 2
    assert len(adapter(reject_b)(pa.Table.from_batches([], parts[0].schema))) == 0


def test_headers_have_their_type_also_where_there_are_none() -> None:
    assert each_mapped(reject_b)(records([b"a"]))["headers"].type == HEADERS
    assert isinstance(each_mapped(reject_b)(records([b"a"])), pa.RecordBatch)
