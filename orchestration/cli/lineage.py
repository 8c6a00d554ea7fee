"""`weir lineage`: from a table's commit back to offsets in Kafka."""

from typing import Annotated

import typer

from orchestration.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def lineage(
    table: Annotated[str, typer.Argument(help="Its path in the tables' folder, such as airport_delays or staged/flights.")],
    version: Annotated[int | None, typer.Option(help="A Delta version; the newest when left out.")] = None,
    window: Annotated[str | None, typer.Option(help="Of this window alone, such as 2013-01-31.")] = None,
) -> None:
    """Which versions of which tables a table's rows were computed from, and which offsets of which topics those hold."""
    from orchestration.compute.lineage import lineage, told

    for line in told(lineage(Settings.load().tables, table, version, window)):
        typer.echo(line)
