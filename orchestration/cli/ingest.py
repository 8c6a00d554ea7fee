"""`weir ingest`: be a member of a consumer's group from the terminal, exactly as a Dagster run is one."""

import logging
import os
import signal
import socket
import threading
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from consumers.errors import ConfigError
from consumers.staging.log import StagedCommit
from orchestration.settings import Settings

app = typer.Typer(add_completion=False)
_out = Console(highlight=False)


@app.command()
def ingest(
    name: Annotated[str, typer.Argument(help="The consumer: the name of its folder in defs/consumers.")],
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End at the offsets that the topic holds now.")
    ] = False,
    max_seconds: Annotated[float | None, typer.Option(min=1, help="End after this long.", show_default="never")] = None,
) -> None:
    """Stage a consumer's topic; Ctrl-C finishes the batch in hand and ends."""
    from consumers.brokers.options import KafkaOptions
    from consumers.processing.ingest import ingest as run
    from orchestration.catalog import consumers
    from orchestration.local.cluster import bootstrap_servers

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    settings = Settings.load()
    known = consumers(settings)
    if name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    result = run(
        known[name],
        KafkaOptions(bootstrap_servers(settings)),
        member=f"{socket.gethostname()}-{os.getpid()}",
        stop=_stopped_by_signals(),
        until_caught_up=until_caught_up,
        max_seconds=max_seconds,
        on_commit=_show,
    )
    _out.print(f"{name}: {result.reason}; {result.commits} commits, {result.rows:,} rows, {result.dead_letters:,} dead letters")


def _stopped_by_signals() -> threading.Event:
    """Set by the first SIGINT or SIGTERM; the second one kills, which is safe too."""
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    return stop


def _show(commit: StagedCommit) -> None:
    lost = f", LOST {sum(map(len, commit.lost.values())):,} offsets" if commit.lost else ""
    _out.print(
        f"version {commit.version}: {commit.rows:,} rows in {len(commit.windows):,} windows, {commit.dead_letters:,} dead "
        f"letters, lag {commit.lag:,}{lost}"
    )
