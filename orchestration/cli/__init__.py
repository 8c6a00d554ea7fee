"""The command `weir`.

Each sub-command is a module beside this one that has a typer `app`; add it to `COMMANDS`.
"""

import signal
from typing import Annotated

import typer

from orchestration.cli.lazy import LazyGroup

# name → (module, line of help); the module is imported when the command is run. An error that an operator can
# put right belongs into `orchestration.cli.lazy.EXPECTED`.
COMMANDS = {
    "demo": ("orchestration.cli.demo", "The main job, end to end, and its result."),
    "up": ("orchestration.cli.up", "Kafka, a live replay of flights, Dagster's webserver and daemon."),
    "ingest": ("orchestration.cli.ingest", "Stage a consumer's topic from this terminal."),
    "status": ("orchestration.cli.status", "Positions, lag and tables of the consumers."),
    "sql": ("orchestration.cli.sql", "A query over all tables, by DuckDB."),
    "new": ("orchestration.cli.new", "A new consumer's definition, proposed from its topic."),
    "try": ("orchestration.cli.try_", "Decode some of a consumer's topic, and commit nothing."),
    "check": ("orchestration.cli.check", "What a changed definition means for the tables that are there."),
    "lineage": ("orchestration.cli.lineage", "Where a table's rows come from, back to offsets in Kafka."),
    "repair": ("orchestration.cli.repair", "Make positions, group offsets and Dagster's history agree again."),
    "balances": ("orchestration.cli.balances", "Account balances in a SQL database, exactly once, and their check."),
    "kafka": ("orchestration.cli.kafka", "The embedded Kafka cluster and its sample topics."),
}


class _Commands(LazyGroup):
    commands_by_name = COMMANDS


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Kafka topics staged exactly once as Delta tables, and PySpark over what was committed.",
)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Entry point of the console script."""
    signal.signal(signal.SIGTERM, _terminated)
    app(prog_name="weir")


def _terminated(_number: int, _frame: object) -> None:
    """SIGTERM unwinds the stack as Ctrl-C does, so that whatever a command started is stopped."""
    raise SystemExit(128 + signal.SIGTERM)
