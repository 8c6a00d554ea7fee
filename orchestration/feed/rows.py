"""A table's rows as the keys and values of Kafka records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.dataset as ds

from consumers.brokers.serializers import as_json
from consumers.errors import ConfigError
from orchestration.feed.changes import Row

_BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Shape:
    """Which columns are the key, and which the value."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]

    @staticmethod
    def of(available: Sequence[str], keys: Sequence[str], columns: Sequence[str] | None) -> "Shape":
        """With None, the value has every column whose name does not begin with `_`. Raises `ConfigError` for a column that is not
        there.
        """
        chosen = [name for name in available if not name.startswith("_")] if columns is None else columns
        if missing := [name for name in (*keys, *chosen) if name not in available]:
            raise ConfigError(
                f"the table has no column {', '.join(missing)}; it has {', '.join(available)}. Nothing was sent. Mend `publish` "
                "in the job's YAML."
            )
        return Shape(tuple(keys), tuple(chosen))

    def rows(self, table: ds.Dataset) -> Iterator[Row]:
        """The rows as records. A column that an older version of the table has not is null."""
        for row in _dicts(table, (*self.keys, *self.columns)):
            value = as_json({name: row.get(name) for name in self.columns})
            yield self._key(row), value or b""

    def only_keys(self, table: ds.Dataset) -> Iterator[bytes]:
        """The rows' keys."""
        return map(self._key, _dicts(table, self.keys))

    def _key(self, row: dict[str, Any]) -> bytes:
        """Text as it is, one value of another type as JSON, several as a JSON object."""
        values = {name: row.get(name) for name in self.keys}
        if empty := [name for name, value in values.items() if value is None]:
            raise ConfigError(
                f"a row has no value in the key column {', '.join(empty)}: {values}. Nothing was sent. Keys must tell rows "
                "apart: name other columns, or add an audit `not_null` to the job."
            )
        only = next(iter(values.values()))
        if len(values) > 1:
            return as_json(values) or b""
        return only.encode() if isinstance(only, str) else as_json(only) or b""


def _dicts(table: ds.Dataset, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    wanted = [name for name in dict.fromkeys(names) if name in table.schema.names]
    for batch in table.to_batches(columns=wanted, batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
        yield from batch.to_pylist()
