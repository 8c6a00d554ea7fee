"""Values as they are."""

import pyarrow as pa

from consumers.config import Column
from consumers.formats import RawDecoder


def test_every_value_is_a_row_of_a_binary_column() -> None:
    values = [b"", b"\xff\0", b"x"]
    decoded = RawDecoder({"v": Column(type="binary")}).decode(pa.array(values, pa.binary()))
    assert (decoded.rows["v"].to_pylist(), decoded.indices.to_pylist(), decoded.rejects) == (values, [0, 1, 2], ())


def test_text_that_is_not_utf8_is_rejected_and_its_neighbours_are_not() -> None:
    sliced = pa.array([b"\xff", b"a", b"\xc3(", "é".encode()], pa.binary()).slice(1)
    decoded = RawDecoder({"v": Column(type="string")}).decode(sliced)
    assert (decoded.rows["v"].to_pylist(), decoded.indices.to_pylist()) == (["a", "é"], [0, 2])
    assert [(r.index, r.reason) for r in decoded.rejects] == [(1, "not UTF-8: invalid continuation byte at byte 0")]


def test_an_empty_batch_is_empty() -> None:
    assert RawDecoder({"v": Column(type="string")}).decode(pa.array([], pa.binary())).rows.num_rows == 0
