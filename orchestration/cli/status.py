"""`weir status`: one table of all consumers, or one consumer by partition."""

import json
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from consumers.config import Consumer
from consumers.errors import ConfigError, WeirError
from orchestration.settings import Settings

if TYPE_CHECKING:
    from orchestration.status import ConsumerStatus, Running

app = typer.Typer(add_completion=False)
_out = Console(highlight=False)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="A consumer; all of them when left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Positions, lag and tables of the consumers, and what Dagster knows of them; exit code 1 when something is wrong."""
    from consumers.brokers.admin import KafkaAdmin
    from orchestration.catalog import consumers
    from orchestration.connection import kafka_options
    from orchestration.status import consumer_status

    settings = Settings.load()
    known = consumers(settings)
    if name is not None and name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    wanted = [known[name]] if name else list(known.values())
    admin: KafkaAdmin | WeirError
    try:
        admin = KafkaAdmin(kafka_options(settings))
    except WeirError as error:
        admin = error
    running = _running(settings, wanted)
    found = [consumer_status(each, admin, running.get(each.name)) for each in wanted]
    if as_json:
        typer.echo(json.dumps([asdict(each) | {"lag": each.lag, "state": each.state} for each in found], indent=2))
    else:
        _show(found, name is not None)
    if any(problem for each in found for problem in each.problems):
        raise typer.Exit(1)


def _running(settings: Settings, consumers: list[Consumer]) -> "dict[str, Running]":
    """What Dagster knows, where there is one: DAGSTER_HOME, else that of `weir up`. Importing it takes a second or two."""
    if (home := settings.dagster_home) is None:
        return {}
    from consumers.clock import SystemClock
    from orchestration.event_log import instance_of
    from orchestration.platform_asset import running

    with ExitStack() as closing:
        return running(closing.enter_context(instance_of(home)), consumers, SystemClock())


def _show(found: "list[ConsumerStatus]", by_partition: bool) -> None:
    table = _overview(found)
    narrow = table.__rich_measure__(_out, _out.options.update(max_width=1000)).maximum > _out.width
    _out.print(_turned(found) if narrow else table)
    for each in found:
        if by_partition:
            _out.print(_by_partition(each))
    for problem in dict.fromkeys(problem for each in found for problem in each.problems):
        _out.print(problem)


def _overview(found: "list[ConsumerStatus]") -> Table:
    from orchestration.status import COLUMNS, row

    table = Table()
    for title, kind in COLUMNS.items():
        table.add_column(title, justify="right" if kind == "int" else "left")
    for each in found:
        table.add_row(*(_cell(value) for value in row(each)))
    return table


def _turned(found: "list[ConsumerStatus]") -> Table:
    """The same for a narrow terminal: a line for each column."""
    from orchestration.status import COLUMNS, row

    table = Table(*([""] + [each.name for each in found]))
    for title, *values in list(zip(COLUMNS, *(row(each) for each in found), strict=True))[1:]:
        table.add_row(title, *(_cell(value) for value in values))
    return table


def _cell(value: str | int) -> str:
    """Text as it is; a number with separators, `?` where it is not known."""
    return value if isinstance(value, str) else "?" if value < 0 else f"{value:,}"


def _by_partition(each: "ConsumerStatus") -> Table:
    version = f", version {each.staged.version}" if each.staged is not None else ""
    table = Table(title=f"{each.name}: {each.topic}{version}", title_justify="left")
    for title in ("partition", "low", "high", "committed", "group offset", "lag"):
        table.add_column(title, justify="right")
    for p in each.partitions:
        name = str(p.partition) if p.topic in ("", each.topic) else f"{p.topic}/{p.partition}"
        table.add_row(name, f"{p.low:,}", f"{p.high:,}", _offset(p.position), _offset(p.group_offset), f"{p.lag:,}")
    return table


def _offset(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
