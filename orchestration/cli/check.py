"""`weir check`: what changed definitions mean for the tables that are there."""

from typing import Annotated

import typer
from rich.console import Console

from consumers.errors import ConfigError
from orchestration.settings import Settings

app = typer.Typer(add_completion=False)
_out = Console(highlight=False, soft_wrap=True)


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(help="A consumer; all of them when left out.")] = None,
) -> None:
    """Compare definitions with their staged tables, changing nothing; exit code 1 when a table would have to be rebuilt."""
    from orchestration.catalog import consumers
    from orchestration.changes import changes

    known = consumers(Settings.load())
    if name is not None and name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    stops = False
    for each in [name] if name else known:
        found = changes(known[each])
        stops = stops or any(change.level == "rebuild" for change in found)
        for change in found:
            _out.print(f"{each}: {change.level}: {change}", markup=False)
        if not found:
            there = known[each].staged.exists()
            _out.print(f"{each}: {'its table is as the definition says' if there else 'no table yet'}", markup=False)
    if stops:
        raise typer.Exit(1)
