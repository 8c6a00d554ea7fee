"""`weir balances`: account balances in a SQL database, exactly once, and the check that they are right."""

import hashlib
import os
import random
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orchestration.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from consumers.brokers.options import KafkaOptions
    from consumers.processing.context import Surroundings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Account balances in a SQL database, and their check.")
_out = Console(highlight=False, soft_wrap=True)
_SHOWN = 10

Database = Annotated[
    str | None,
    typer.Option(
        envvar="WEIR_BALANCES_DATABASE",
        help="SQLAlchemy's URL, such as postgresql+psycopg://me@host/db; put one with a password into the environment.",
        show_default="balances.db in the installation's folder",
    ),
]


@app.command()
def run(
    database: Database = None,
    errors: Annotated[
        float, typer.Option(min=0, max=0.5, help="Probability that a statement or COMMIT fails, before or after its effect.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Decides which do.")] = 2013,
) -> None:
    """Add the transactions that the topic holds now to the balances. With --errors, start again until it is done."""
    from consumers.database.faults import faults
    from consumers.processing.context import Surroundings
    from orchestration.connection import kafka_options

    settings = Settings.load()
    engine, kafka = _engine(settings, database), kafka_options(settings)
    around, starts = Surroundings(), 1
    with faults(engine, errors, random.Random(seed)) as injected:
        while not _ended(engine, kafka, around, start_again=errors > 0):
            starts += 1
    _out.print(f"caught up; {starts} start(s), {sum(injected.injected.values())} injected error(s)")


@app.command()
def check(
    database: Database = None,
    malformed: Annotated[float, typer.Option(min=0, max=1, help="As given to `weir kafka produce`.")] = 0.0,
    limit: Annotated[int | None, typer.Option(min=0, help="As given to `weir kafka produce`.", show_default="all")] = None,
    seed: Annotated[int, typer.Option(min=0, help="As given to `weir kafka produce`.")] = 2013,
) -> None:
    """Compare the balances with what the generator says they are after `weir kafka produce transactions`; exit code 1 if not."""
    from orchestration.samples.balances import differences
    from orchestration.samples.records import expected_balances

    expected = expected_balances(seed, malformed=malformed, limit=limit)
    wrong = differences(_engine(Settings.load(), database, there=True), expected)
    for each in wrong[:_SHOWN]:
        _out.print(f"{each.account}: expected {each.expected} cents, found {'none' if each.actual is None else each.actual}")
    _out.print(f"{len(wrong)} of {len(expected)} balances are wrong" if wrong else f"all {len(expected)} balances are right")
    if wrong:
        raise typer.Exit(1)


def _engine(settings: Settings, database: str | None, *, there: bool = False) -> "Engine":
    """The database, with its tables. Raises `ConfigError` for one that cannot be, or is not there although it has to be."""
    from sqlalchemy import URL, create_engine
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    from consumers.database.failures import cause_of, explained
    from consumers.database.tables import create_tables
    from consumers.errors import ConfigError
    from orchestration.samples.balances import BALANCES

    settings.home.mkdir(parents=True, exist_ok=True)
    try:
        engine = create_engine(database or URL.create("sqlite", database=str(settings.home / "balances.db")))
        if there:
            _require_file(engine)
        create_tables(engine, BALANCES)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise ConfigError(f"--database is no URL that can be used: {error}") from error
    except ValueError:
        # Its message shows what is no port, which is the password where the host was forgotten.
        raise ConfigError("--database is no URL that can be used: what follows the host's colon is no port") from None
    except SQLAlchemyError as error:
        raise explained(error, engine, "making the tables", "Nothing was written.") from cause_of(error)
    return engine


def _require_file(engine: "Engine") -> None:
    """SQLite would make a database that is not there, which then has no balances."""
    from consumers.errors import ConfigError

    path = engine.url.database
    if (
        engine.dialect.name == "sqlite"
        and path
        and path != ":memory:"
        and not path.startswith("file:")
        and not Path(path).exists()
    ):
        raise ConfigError(f"there is no database {path}: run `weir balances run` first, or mend --database")


def _group(engine: "Engine") -> str:
    """A group for each database: a new one would otherwise go on where the group stands that filled another."""
    from orchestration.samples.balances import NAME

    where = engine.url.render_as_string(hide_password=True)
    return f"weir-{NAME}-{hashlib.sha256(where.encode()).hexdigest()[:8]}"


def _ended(engine: "Engine", kafka: "KafkaOptions", around: "Surroundings", start_again: bool) -> bool:
    """Whether a member came to the end of the topic, rather than to an error after which it starts again."""
    from consumers.brokers.kafka import KafkaGroupMember
    from consumers.errors import StorageError
    from consumers.processing.processor import Limits
    from orchestration.samples.balances import NAME, TOPIC, keep_balances

    member = f"{socket.gethostname()}-{os.getpid()}"
    broker = KafkaGroupMember(kafka, TOPIC, _group(engine), f"weir-{NAME}", around.clock)
    try:
        keep_balances(broker, engine, member, threading.Event(), Limits(until_caught_up=True), around)
    except StorageError as error:
        if not start_again:
            raise
        _out.print(f"starting again: {error}")
        return False
    return True
