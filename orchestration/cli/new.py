"""`weir new consumer`: a consumer's YAML, proposed from what its topic holds."""

from typing import Annotated

import typer
from rich.console import Console

from consumers.clock import SystemClock
from orchestration.settings import Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A new consumer's definition.")
_out = Console(highlight=False, soft_wrap=True)


@app.callback()
def _group() -> None:
    """Keeps `consumer` a word of its own, although it is the only one so far."""


@app.command()
def consumer(
    name: Annotated[str, typer.Argument(help="Small letters, digits and _; also the name of its folder and of its table.")],
    topic: Annotated[str | None, typer.Option(help="The Kafka topic.", show_default="NAME")] = None,
    records: Annotated[int, typer.Option(min=2, max=100_000, help="How many to look at, from both ends of the topic.")] = 1000,
    without_topic: Annotated[bool, typer.Option("--plain", help="Do not look at the topic: write the template.")] = False,
) -> None:
    """Write defs/consumers/NAME/defs.yaml. With a topic that can be read, format, schema, window and batches are proposed."""
    from orchestration.proposal.connect import reader
    from orchestration.proposal.propose import consumers_folder, definition, require_free, write
    from orchestration.proposal.show import show

    settings, clock = Settings.load(), SystemClock()
    folder = consumers_folder(settings)
    require_free(folder, name, settings)
    connect, why_not = (None, "Written with --plain.") if without_topic else reader(topic or name, settings)
    found = definition(topic or name, connect, why_not, clock, records)
    path = write(folder, name, found.text, settings)
    show(found, _out)
    shown = path.relative_to(settings.project) if path.is_relative_to(settings.project) else path
    _out.print(f"\nwrote {shown}", markup=False)
    _out.print(f"Next: read it, `weir try {name}`, then Deployment, Reload in Dagster.", markup=False)
