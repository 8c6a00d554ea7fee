"""Text that stands beside a record's value (its key, a header) into a column, as strictly as JSON into the same type."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import Column
from consumers.formats.decoder import Decoded
from consumers.formats.json import JsonDecoder
from consumers.formats.raw import RawDecoder

_WRITTEN = {"boolean": "true|false", "date": "[-0-9]+", "timestamp": "[-+.:0-9TZ ]+"}
"""What a type's text is made of, so that it is one JSON value; other types are numbers."""
_NUMBER = "[-+.0-9eE]+"
_QUOTED = ("date", "timestamp")


class TextDecoder:
    """Reads one column from texts. `binary` takes the bytes as they are."""

    def __init__(self, name: str, kind: str) -> None:
        column = Column(type=kind)
        self._kind = column.arrow
        self._name = name
        self._raw = RawDecoder({name: Column(type="binary" if kind == "binary" else "string")})
        self._json = None if kind in ("binary", "string") else JsonDecoder({name: column})
        quote = '"' if kind in _QUOTED else ""
        self._before, self._after = f'{{"{name}":{quote}', f"{quote}}}"
        self._pattern = f"^({_WRITTEN.get(kind, _NUMBER)})$"
        self._no_value = f"not a {kind}"

    def decode(self, texts: pa.BinaryArray) -> tuple[pa.Array, dict[int, str]]:
        """A column as long as `texts`, null where they are or where one is not of the type; and by index, why it is not."""
        present = pc.indices_nonzero(texts.is_valid())
        decoded = self._raw.decode(texts.take(present) if texts.null_count else texts)
        bad = {present[r.index].as_py(): r.reason for r in decoded.rejects}
        present = present.take(decoded.indices) if bad else present
        if self._json is not None:
            decoded, present = self._typed(decoded.rows[self._name].combine_chunks(), present, bad)
        values = decoded.rows[self._name].combine_chunks()
        if len(present) == len(texts):
            return values, bad
        at = np.full(len(texts), -1, np.int64)
        at[present.to_numpy()] = np.arange(len(present))
        return values.take(pa.array(at, mask=at < 0)), bad

    def _typed(self, texts: pa.StringArray, present: pa.Array, bad: dict[int, str]) -> tuple[Decoded, pa.Array]:
        """Texts read as JSON values of the type."""
        assert self._json is not None
        plain = pc.match_substring_regex(texts, self._pattern)
        for i in pc.indices_nonzero(pc.invert(plain)).to_pylist():
            bad[present[i].as_py()] = self._no_value
        texts, present = texts.filter(plain), present.filter(plain)
        whole = pc.binary_join_element_wise(self._before, texts, self._after, "")
        decoded = self._json.decode(whole.cast(pa.binary()))
        for reject in decoded.rejects:
            bad[present[reject.index].as_py()] = reject.reason.partition(" - at ")[0]
        return decoded, present.take(decoded.indices)
