"""What a changed definition means for the table that is there, said before anything runs.

Nobody keeps earlier definitions, so the definition is compared with what the table and its Delta log say: columns and types, the
keys of its windows, where its newest rows were put, and the topics that its commits read. Changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from consumers.config import Consumer, Window
from consumers.staging.log import StagedCommit, latest
from consumers.staging.schema import VALUE, WINDOW, schema_id
from consumers.staging.windows import Every, window_keys

Level = Literal["safe", "note", "rebuild"]
_RECENT = 200
_LOOKED_AT = 10_000
_LENGTHS: dict[int, Every] = {len("2013-01-31"): "day", len("2013-01-31-05"): "hour"}
_WIDER: dict[str, tuple[str, ...]] = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64", "double"),
    "float": ("double",),
}
_NAMES = {
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamp",
}


@dataclass(frozen=True)
class Change:
    """A difference: what it is, what it means for the rows that are there, and what to do (empty: nothing).

    `safe` goes by itself; `note` is allowed, and somebody should know; `rebuild` stops ingestion, or would mix what does not
    belong together, until the table is rebuilt or the definition changed back.
    """

    level: Level
    what: str
    means: str
    do: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.means}" + (f" {self.do}" if self.do else "")


def changes(consumer: Consumer) -> list[Change]:
    """Every difference, the columns' first. Empty where there is no table yet, and where nothing differs."""
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return []
    table = DeltaTable(consumer.staged)
    newest = latest(table, _RECENT)
    differing = [*_columns(consumer, table), *_kept_bytes(consumer, table), *_window(consumer, table), *_topics(consumer, newest)]
    return differing or list(_read_otherwise(consumer, newest))


def rebuild(consumer: Consumer) -> str:
    """How to get a table that is as the definition says."""
    if consumer.config.only_topic is None:
        return "Change the definition back, or use a new name, which stages into a new table: shadows are of one topic."
    return (
        f"Change the definition back, or build the table again: launch the job shadow_{consumer.name}, look at its differences, "
        f"then swap_{consumer.name}. A new name stages into a new table."
    )


def _columns(consumer: Consumer, table: DeltaTable) -> Iterator[Change]:
    stored = {f.name: f.type for f in pa.schema(table.schema().to_arrow()) if not f.name.startswith("_")}
    wanted = {name: column.arrow for name, column in consumer.config.columns.items()}
    for name in wanted.keys() - stored.keys():
        means = "ingestion adds it; older rows have null in it, and a backfill of their windows fills it."
        yield Change("safe", f"column '{name}' ({_name(wanted[name])}) is new", means)
    for name, kind in wanted.items():
        if name in stored and _name(stored[name]) != _name(kind):
            yield _retyped(consumer, name, stored[name], kind)
    for name in stored.keys() - wanted.keys():
        means = "the table has it and the definition does not; a Delta table cannot lose a column, and ingestion stops."
        do = f"Declare it again (its values are null where records do not have the field any more). {rebuild(consumer)}"
        yield Change("rebuild", f"column '{name}' ({_name(stored[name])}) is gone", means, do)


def _kept_bytes(consumer: Consumer, table: DeltaTable) -> Iterator[Change]:
    there = any(field.name == VALUE for field in table.schema().fields)
    if consumer.config.keep_raw and not there:
        yield Change("safe", "keep_raw is new", "ingestion adds the column `_value`; older rows have no bytes in it.")
    elif there and not consumer.config.keep_raw:
        means = "the table has kept bytes; a Delta table cannot lose a column, and ingestion stops."
        yield Change("rebuild", "keep_raw is gone", means, rebuild(consumer))


def _retyped(consumer: Consumer, name: str, stored: pa.DataType, wanted: pa.DataType) -> Change:
    what = f"column '{name}' was {_name(stored)} and is {_name(wanted)}"
    if _plain(wanted) in _WIDER.get(_plain(stored), ()):
        means = "wider, so a rebuild loses nothing; but a column's type cannot be changed in place, and ingestion stops."
    else:
        means = (
            "a column's type cannot be changed in place, and ingestion stops; a rebuild makes dead letters of what does not fit."
        )
    return Change("rebuild", what, means, rebuild(consumer))


def _window(consumer: Consumer, table: DeltaTable) -> Iterator[Change]:
    found = pa.table(table.get_add_actions(flatten=True)).sort_by([("modification_time", "descending")])
    actions = found.select(["path", f"partition.{WINDOW}"]).to_pylist()
    keys = [str(action[f"partition.{WINDOW}"]) for action in actions]
    sizes = {_LENGTHS[len(key)] for key in keys if len(key) in _LENGTHS}
    window = consumer.config.window
    if other := sizes - {window.every}:
        means = "windows of both sizes would stand in one table, and Dagster's partitions would not be its windows."
        yield Change("rebuild", f"windows were one {other.pop()} and are one {window.every}", means, rebuild(consumer))
    elif actions and not _as_now(Path(table.table_uri), str(actions[0]["path"]), keys[0], window):
        by = "the record's timestamp" if window.field is None else f"'{window.field}'"
        means = "a row's window would depend on when it was staged, and jobs by window would see it twice or not at all."
        yield Change("rebuild", f"windows go by {by} now, and the newest rows did not", means, rebuild(consumer))


def _as_now(folder: Path, file: str, key: str, window: Window) -> bool:
    """Whether a file's rows belong to its window under the definition; true where that cannot be told."""
    name = window.field or "_timestamp"
    source = pq.ParquetFile(folder / file)
    if name not in source.schema_arrow.names:
        return window.field is None
    batch = next(source.iter_batches(_LOOKED_AT, columns=[name, "_tombstone"]), None)
    if batch is None:
        return True
    rows = pa.table(batch).filter(pc.invert(batch["_tombstone"]))
    found = set(window_keys(rows[name], window.every).to_pylist()) if rows.num_rows else set()
    return found <= {key, None}


def _topics(consumer: Consumer, newest: list[StagedCommit]) -> Iterator[Change]:
    read = {tp.topic for commit in newest for tp in (*commit.ranges, *commit.starts)}
    config = consumer.config
    dropped, then = sorted(read - {*config.topics_among(lambda: read)}), ", ".join(sorted(read))
    if read and len(dropped) == len(read):
        means = f"the positions in {then} stay, '{config.source}' is read from `start`, and its rows go into the same table."
        do = "Where they do not belong together, use a new name."
        yield Change("note", f"the topic was {then} and is {config.source}", means, do)
    elif dropped:
        means = "their rows and positions stay; named again, they are read from where they stand."
        yield Change("note", f"no longer read: {', '.join(dropped)}", means)


def _read_otherwise(consumer: Consumer, newest: list[StagedCommit]) -> Iterator[Change]:
    known = [commit.schema_id for commit in newest if commit.schema_id]
    if known and known[-1] != schema_id(consumer.config.columns):
        means = "rows that are there stay as they were made; a backfill of their windows makes them again."
        yield Change("note", "columns are read otherwise than by the newest commit (nullable, path, header or key)", means)


def _name(kind: pa.DataType) -> str:
    """A type in the words of a definition."""
    plain = _plain(kind)
    return _NAMES.get(plain, plain.replace("decimal128", "decimal").replace(", ", ","))


def _plain(kind: pa.DataType) -> str:
    return str(kind).replace("large_", "").replace("_view", "")
