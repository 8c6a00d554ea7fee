"""Values as they are: one column of bytes, or of text that must be valid UTF-8."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from consumers.config import Column
from consumers.formats.decoder import Decoded, Reject, arrow_schema


class RawDecoder:
    """One column, the value itself."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.schema = arrow_schema(columns)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Every value is a row, unless the column is a string and the value is not UTF-8."""
        kind = self.schema.field(0).type
        every = pa.array(np.arange(len(values), dtype=np.int32))
        try:
            return Decoded(pa.table([values.cast(kind)], schema=self.schema), every)
        except pa.ArrowInvalid:
            bad = {i: reason for i, value in enumerate(values) if (reason := _not_utf8(value.as_py()))}
        good = pa.array([i for i in range(len(values)) if i not in bad], pa.int32())
        rows = pa.table([values.take(good).cast(kind)], schema=self.schema)
        return Decoded(rows, good, tuple(Reject(i, reason) for i, reason in bad.items()))


def _not_utf8(value: bytes) -> str | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return None
