"""`weir up`: the whole platform on this machine, with flights arriving live."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from consumers.clock import SystemClock
from consumers.errors import WeirError
from orchestration.settings import Settings

app = typer.Typer(add_completion=False)
_out = Console(highlight=False, soft_wrap=True)


@app.command()
def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the Dagster UI.")] = 3000,
    rate: Annotated[float, typer.Option(min=0, help="Flights replayed a second; 0 replays none.")] = 200.0,
) -> None:
    """Start Kafka, a live replay of flights, Dagster's webserver and daemon; Ctrl-C ends all that this started."""
    from orchestration.local import cluster
    from orchestration.local.stack import running_dagster, wait_for_interrupt
    from orchestration.samples import complete

    settings = Settings.load()
    with Console(stderr=True).status("Starting Kafka (the first time its jars are fetched, about half a minute)"):
        started = cluster.up(settings)
    try:
        _out.print(f"Kafka     {started.bootstrap_servers}")
        for topic in ("weather", "transactions"):
            complete.complete(topic, started.bootstrap_servers)
        with (
            Console(stderr=True).status("Starting Dagster"),
            running_dagster(settings, started.bootstrap_servers, port) as dagster,
            _replaying(started.bootstrap_servers, rate),
        ):
            _out.print(f"Dagster   {dagster.url}   (output in {dagster.log})")
            _out.print("Ctrl-C ends everything that this command started; data and tables stay.")
            wait_for_interrupt(dagster, SystemClock())
            _out.print("Stopping (ingestion finishes its batch)")
    finally:
        if started.started:
            cluster.down(settings)


@contextmanager
def _replaying(bootstrap_servers: str, rate: float) -> Iterator[None]:
    """Flights, `rate` a second, from where the topic ends, on a thread that ends with the block."""
    from orchestration.samples import complete

    stop = threading.Event()

    def replay() -> None:
        try:
            complete.replay_from_end("flights", bootstrap_servers, rate, stop)
        except WeirError as error:
            _out.print(f"The replay of flights ended: {error}")

    thread = threading.Thread(target=replay, name="replay", daemon=True)
    if rate:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if rate:
            thread.join(timeout=10)
