"""All tables for DuckDB, each a view: staged tables by their consumer's name, dead letters as `<name>_dead_letters`, and the
outputs of jobs by theirs.

DuckDB reads the Parquet files of each table's newest version itself. Its own Delta extension is not needed: that one is loaded
from the network when it is first used, which many machines cannot do.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from consumers.errors import ConfigError
from consumers.staging.local import table_path
from orchestration.settings import DEAD_LETTERS, STAGED, Settings

_FOREIGN = {"deletionVectors", "columnMapping"}
_LETTERS = "_dead_letters"
_QUERIES = {"SELECT", "EXPLAIN", "COPY"}
_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE",
    "timestamp[us]": "TIMESTAMP",
}


def tables(settings: Settings) -> dict[str, Path]:
    """All Delta tables of this installation, by the name that queries use."""
    found = {path.name: path for path in _tables_in(settings.tables)}
    found |= {path.name: path for path in _tables_in(settings.tables / STAGED)}
    found |= {path.name + _LETTERS: path for path in _tables_in(settings.tables / DEAD_LETTERS)}
    return dict(sorted(found.items()))


def query(text: str, known: Mapping[str, Path]) -> Any:
    """DuckDB's cursor over a query's result, read as it is fetched. Raises `ConfigError` for what cannot be run."""
    try:
        import duckdb  # type: ignore[import-not-found, unused-ignore]  # an extra
    except ImportError:
        raise ConfigError("this needs DuckDB: install `weir[sql]`, or `duckdb` beside it") from None
    # What a query names in passing, such as a file on the web, must not make DuckDB fetch code for it.
    database = duckdb.connect(config={"autoinstall_known_extensions": False})
    database.execute("SET TimeZone = 'UTC'")
    try:
        for name in _named(text, known):
            _add(database, name, known[name])
        kinds = {statement.type.name for statement in database.extract_statements(text)}
        if not kinds or kinds - _QUERIES:
            raise ConfigError("that is no query: tables are only read here, so start with SELECT, WITH, DESCRIBE or SUMMARIZE")
        return database.execute(text)
    except duckdb.Error as error:
        raise ConfigError(f"{error}\n{_hint(known)}" if isinstance(error, duckdb.CatalogException) else str(error)) from None


def _tables_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if (path / "_delta_log").is_dir()]


def _named(text: str, known: Mapping[str, Path]) -> list[str]:
    """The tables that a query may mean: a view costs a look at the table's log."""
    words = {word.lower() for word in re.findall(r"\w+", text)}
    return [name for name in known if name.lower() in words]


def _add(database: Any, name: str, path: Path) -> None:
    table = DeltaTable(path)
    if foreign := _FOREIGN & set(table.protocol().reader_features or ()):
        raise ConfigError(f"table {name} uses {', '.join(sorted(foreign))}, which is not read here: use Spark")
    schema = pa.schema(table.schema().to_arrow(as_large_types=False))
    columns = ", ".join(_column(field) for field in schema)
    files = [str(table_path(table) / unquote(str(file))) for file in pa.table(table.get_add_actions())["path"].to_pylist()]
    if not files:
        empty = schema.empty_table()
        database.register(f"{name}_of_no_rows", empty)
        source = f'"{name}_of_no_rows"'
    else:
        listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = true, hive_types_autocast = false)"
    database.execute(f'CREATE VIEW "{name}" AS SELECT {columns} FROM {source}')


def _column(field: pa.Field) -> str:
    """A column in the table's own type, whatever a file has; DuckDB skips files and row groups through such a cast."""
    name = '"' + field.name.replace('"', '""') + '"'
    kind = str(field.type)
    decimal = re.fullmatch(r"decimal128\((\d+), (\d+)\)", kind)
    sql = f"DECIMAL({decimal[1]}, {decimal[2]})" if decimal else _TYPES.get(kind)
    return f"{name}::{sql} AS {name}" if sql else name


def _hint(known: Mapping[str, Path]) -> str:
    return f"There are: {', '.join(known)}." if known else "There are no tables yet: stage something first."
