"""Records by name: which are among others, and sorting more of them than Arrow does."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from consumers.staging import places
from consumers.staging.places import absent_from, in_order


def of(offsets: Sequence[int], partition: int = 0, label: str = "id") -> pa.Table:
    count = len(offsets)
    columns = [["t"] * count, [label] * count, pa.array([partition] * count, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.table([*columns, [str(offset) for offset in offsets]], names=[*places.PLACE, "a"])


def test_a_record_is_absent_where_neither_its_partition_its_life_nor_its_offset_is_there() -> None:
    asked = pa.concat_tables([of([1, 2, 9]), of([2], partition=1), of([2], label="other")])
    assert absent_from(of([3, 2, 2]), asked).tolist() == [True, False, True, True, True]


def test_rows_too_large_to_be_sorted_at_once_are_sorted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.concat_tables([of([5, 3, 9], partition=1), of([8, 1, 2]), of([7, 6, 4], label="an earlier")])
    whole = in_order(rows)
    monkeypatch.setattr(places, "_PIECE_BYTES", rows.nbytes // 3)
    pieces = in_order(rows)
    assert whole["_offset"].to_pylist() == [4, 6, 7, 1, 2, 8, 3, 5, 9] and whole.equals(pieces)
    assert pieces["a"].num_chunks > whole["a"].num_chunks


def test_no_rows_are_in_order() -> None:
    assert in_order(of([])).num_rows == 0
