"""`weir kafka`: start, stop and look at the embedded cluster, and fill its sample topics."""

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from orchestration.settings import Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The embedded Kafka cluster and its sample topics.")
_out = Console(highlight=False, soft_wrap=True)


@app.command()
def up(
    brokers: Annotated[
        int | None, typer.Option(help="1 or 3; by default as many as there are, else 1.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65533,
            help="The first broker's; 0 takes a free one; by default the last one, else 9092.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start the cluster, on the data that is there, and wait until a client can produce."""
    from orchestration.local import cluster

    with Console(stderr=True).status("Starting Kafka (the first time its jars are fetched, about half a minute)"):
        done = cluster.up(Settings.load(), brokers, port)
    if done.external:
        _out.print(f"KAFKA_BOOTSTRAP_SERVERS is set: {done.bootstrap_servers} is used, nothing was started")
    elif done.started:
        _out.print(f"Kafka is up at {done.bootstrap_servers} ({done.seconds:.1f} s)")
    else:
        _out.print(f"Kafka was up already at {done.bootstrap_servers}")


@app.command()
def down() -> None:
    """Stop the cluster; its data stays."""
    from orchestration.local import cluster

    settings = Settings.load()
    stopped = cluster.down(settings)
    _out.print(f"stopped {len(stopped)} broker(s); the data stays" if stopped else "the embedded cluster was not running")
    if settings.bootstrap_servers:
        _out.print(f"{settings.bootstrap_servers} (KAFKA_BOOTSTRAP_SERVERS) is not ours to stop")


@app.command()
def status() -> None:
    """Say what runs and where; exit code 1 when no client gets an answer."""
    from orchestration.local import cluster

    found = cluster.status(Settings.load())
    if found.bootstrap_servers is None:
        _out.print("there is no embedded cluster yet: `weir kafka up` makes one")
    else:
        origin = " (KAFKA_BOOTSTRAP_SERVERS)" if found.external else ""
        _out.print(f"{found.bootstrap_servers}{origin}: {'usable' if found.usable else 'no answer'}")
    for broker in found.brokers:
        running = f"pid {broker.pid}" if broker.pid else "not running"
        _out.print(f"  broker {broker.id}  {broker.address}  {running}  {broker.folder}")
    if not found.usable:
        raise typer.Exit(1)


@app.command()
def produce(  # typer calls it by name
    topic: Annotated[str, typer.Argument(help="flights, weather, transactions, or all.")],
    malformed: Annotated[float, typer.Option(min=0, max=1, help="Share of broken records, such as 0.01.")] = 0.0,
    limit: Annotated[int | None, typer.Option(min=0, help="Only the first records.", show_default="all")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Records a second.", show_default="as fast as possible")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is generated and what is broken.")] = 2013,
    recreate: Annotated[bool, typer.Option("--recreate", help="Delete the topic and its records first.")] = False,
) -> None:
    """Write a sample topic's records. Run twice, they are there twice, unless --recreate is given."""
    from orchestration.local import cluster
    from orchestration.samples import produce

    bootstrap_servers = cluster.bootstrap_servers(Settings.load())
    topics = list(produce.SAMPLES) if topic == "all" else [produce.sample(topic).topic]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        for name in topics:
            bar = bars.add_task(name, total=None)
            done = produce.produce(
                name,
                bootstrap_servers,
                malformed=malformed,
                seed=seed,
                limit=limit,
                rate=rate,
                recreate=recreate,
                progress=lambda sent, total, bar=bar: bars.update(bar, completed=sent, total=total),  # type: ignore[misc]
            )
            _out.print(f"{name}: {done.records} records delivered, {done.malformed} of them malformed")
