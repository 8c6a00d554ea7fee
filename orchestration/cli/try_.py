"""`weir try`: what a definition makes of its topic's records, before anything is staged."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consumers.clock import SystemClock
from consumers.errors import BrokerError, ConfigError
from orchestration.printable import printable
from orchestration.settings import Settings

if TYPE_CHECKING:
    from orchestration.trial import Trial

app = typer.Typer(add_completion=False)
_out = Console(highlight=False, soft_wrap=True)
_WINDOWS_SHOWN = 5
_REASONS_SHOWN = 10
_SECONDS = 30.0


@app.command(name="try")
def try_(
    name: Annotated[str, typer.Argument(help="The consumer: the name of its folder in defs/consumers.")],
    records: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many to decode, over all partitions.")] = 1000,
    start: Annotated[Literal["earliest", "latest"], typer.Option("--from", help="Which end of the topic.")] = "latest",
    rows: Annotated[int, typer.Option(min=0, help="How many rows to show.")] = 5,
    topic: Annotated[str, typer.Option(help="Which topic, of a consumer of several.", show_default="the only one")] = "",
) -> None:
    """Decode records of the real topic and show what would become of them. Nothing is committed, no group is joined.

    Exit code 1 when no record would become a row.
    """
    from orchestration.catalog import consumers
    from orchestration.changes import changes
    from orchestration.operations.topics import one_topic
    from orchestration.proposal.connect import reader
    from orchestration.proposal.sample import read
    from orchestration.trial import attempt

    settings, clock = Settings.load(), SystemClock()
    known = consumers(settings)
    if name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    consumer = one_topic(known[name], topic)
    connect, why_not = reader(consumer.config.topic, settings)
    if connect is None:
        raise BrokerError(why_not)
    with closing(connect()) as open_reader:
        sample = read(open_reader, consumer.config.topic, start, records, _SECONDS, clock)
    trial = attempt(consumer, sample, int(clock.time() * 1000))
    _show(name, consumer.config.topic, trial, list(consumer.config.columns), rows)
    for change in changes(known[name]):
        _out.print(f"{change.level}: {change}", markup=False)
    if trial.records and not trial.rows.num_rows and trial.dead_letters:
        raise typer.Exit(1)


def _show(name: str, topic: str, trial: "Trial", columns: list[str], limit: int) -> None:
    passed = f", {trial.passed_over:,} not of this table" if trial.passed_over else ""
    became = f"{trial.rows.num_rows:,} rows, {trial.dead_letters:,} dead letters{passed}"
    _out.print(f"{name}: {trial.records:,} records of topic {topic}: {became}", markup=False)
    if trial.rows.num_rows:
        if limit:
            _out.print(_rows(trial, columns, limit))
        _out.print(_windows(trial), markup=False)
        _out.print(
            f"{trial.bytes_in / trial.records:,.0f} bytes a record in Kafka, "
            f"{trial.bytes_out / trial.rows.num_rows:,.0f} a row in memory"
        )
    for line in _reasons(trial):
        _out.print(line, markup=False)
    _out.print("Nothing was committed.")


def _rows(trial: "Trial", columns: list[str], limit: int) -> Table:
    """Rows from all over the sample, each a column, since most have more columns than a terminal has room for."""
    count = trial.rows.num_rows
    places = sorted({i * count // limit for i in range(limit)})
    shown = trial.rows.select([*columns, "_partition", "_offset", "_timestamp", "_window"]).take(places).to_pylist()
    table = Table("column", *(f"row {place + 1:,}" for place in places))
    for column in shown[0]:
        table.add_row(column, *(Text(printable(_plain(row[column]))) for row in shown))
    return table


def _windows(trial: "Trial") -> str:
    first = list(trial.windows.items())[:_WINDOWS_SHOWN]
    more = f" and {len(trial.windows) - len(first):,} more" if len(trial.windows) > len(first) else ""
    return f"{len(trial.windows):,} windows: " + ", ".join(f"{window} ({count:,})" for window, count in first) + more


def _reasons(trial: "Trial") -> Iterator[str]:
    """A line for each reason."""
    if trial.rejected:
        yield "dead letters:"
    for each in trial.rejected[:_REASONS_SHOWN]:
        yield f"  {each.count:,} x {printable(each.reason)}"
        yield f"      such as partition {each.partition}, offset {each.offset}: {printable(each.value)}"
    if rest := trial.rejected[_REASONS_SHOWN:]:
        yield f"  {sum(each.count for each in rest):,} for {len(rest)} other reasons"


def _plain(value: object) -> str:
    """As a person writes it."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ")
    return "" if value is None else str(value)
