"""`weir status`: one table of all consumers, or one consumer by partition."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from consumers.errors import ConfigError, WeirError
from orchestration.settings import Settings

if TYPE_CHECKING:
    from orchestration.status import ConsumerStatus

app = typer.Typer(add_completion=False)
_out = Console(highlight=False)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="A consumer; all of them when left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Positions, lag and tables of the consumers, from Kafka and the Delta logs; exit code 1 when something is wrong."""
    from consumers.brokers.admin import KafkaAdmin
    from consumers.brokers.options import KafkaOptions
    from orchestration.catalog import consumers
    from orchestration.local.cluster import bootstrap_servers
    from orchestration.status import consumer_status

    settings = Settings.load()
    known = consumers(settings)
    if name is not None and name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    admin: KafkaAdmin | WeirError
    try:
        admin = KafkaAdmin(KafkaOptions(bootstrap_servers(settings)))
    except WeirError as error:
        admin = error
    found = [consumer_status(known[each], admin) for each in ([name] if name else known)]
    if as_json:
        typer.echo(json.dumps([asdict(each) | {"lag": each.lag} for each in found], indent=2))
    else:
        _show(found, name is not None)
    if any(problem for each in found for problem in each.problems):
        raise typer.Exit(1)


def _show(found: "list[ConsumerStatus]", by_partition: bool) -> None:
    _out.print(_overview(found))
    for each in found:
        if by_partition:
            _out.print(_by_partition(each))
    for problem in dict.fromkeys(problem for each in found for problem in each.problems):
        _out.print(problem)


def _overview(found: "list[ConsumerStatus]") -> Table:
    table = Table("consumer", "topic")
    for title in ("lag", "version", "rows", "files", "dead letters"):
        table.add_column(title, justify="right")
    table.add_column("last commit")
    for each in found:
        staged, dead = each.staged, each.dead_letters
        table.add_row(
            each.name,
            each.topic,
            "?" if each.error else f"{each.lag:,}",
            str(staged.version) if staged else "-",
            f"{staged.rows:,}" if staged else "-",
            f"{staged.files:,}" if staged else "-",
            f"{dead.rows:,}" if dead else "-",
            _when(each.last_commit_ms),
        )
    return table


def _by_partition(each: "ConsumerStatus") -> Table:
    table = Table(title=f"{each.name}: {each.topic}", title_justify="left")
    for title in ("partition", "low", "high", "committed", "group offset", "lag"):
        table.add_column(title, justify="right")
    for p in each.partitions:
        table.add_row(str(p.partition), f"{p.low:,}", f"{p.high:,}", _offset(p.position), _offset(p.group_offset), f"{p.lag:,}")
    return table


def _offset(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _when(ms: int | None) -> str:
    return "-" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%m-%d %H:%M:%SZ")
