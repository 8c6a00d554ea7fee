"""`weir sql`: a query over all tables, by DuckDB."""

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestration.printable import printable
from orchestration.settings import Settings

app = typer.Typer(add_completion=False)
_MOST = 200
_CHUNK = 10_000


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@app.command()
def sql(
    query: Annotated[str | None, typer.Argument(help="Such as: SELECT count(*) FROM flights. Tables are listed without.")] = None,
    form: Annotated[Format, typer.Option("--format", help="csv and json (a line each) are for programs.")] = Format.TABLE,
) -> None:
    """Query staged tables (by consumer), dead letters (<name>_dead_letters) and outputs of jobs, at their newest versions."""
    from orchestration import sql as tables_of

    known = tables_of.tables(Settings.load())
    if query is None:
        _print(["table", "path"], [(name, str(path)) for name, path in known.items()], form)
        return
    result = tables_of.query(query, known)
    _print([column[0] for column in result.description], _rows(result), form)


def _rows(result: Any) -> Iterable[Sequence[object]]:
    while rows := result.fetchmany(_CHUNK):
        yield from rows


def _print(columns: Sequence[str], rows: Iterable[Sequence[object]], form: Format) -> None:
    if form is Format.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(["" if value is None else _text(value) for value in row] for row in rows)
    elif form is Format.JSON:
        for row in rows:
            typer.echo(json.dumps(dict(zip(columns, row, strict=True)), default=_text, ensure_ascii=False))
    else:
        _show(columns, rows)


def _show(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table, count = Table(*columns), 0
    for row in rows:
        count += 1
        if count <= _MOST:
            table.add_row(*("" if value is None else Text(printable(_text(value), but="\n\t")) for value in row))
    console = Console(highlight=False)
    console.print(table)
    if count > _MOST:
        console.print(f"the first {_MOST} of {count:,} rows; `--format csv` prints all")


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
