"""`weir repair`: compare positions, group offsets and Dagster's events, and mend them; also after Dagster's storage was lost."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from consumers.errors import ConfigError, WeirError
from orchestration.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumers.brokers.protocol import BrokerAdmin
    from consumers.clock import Clock
    from orchestration.repair import Outcome, Repairer

app = typer.Typer(add_completion=False)
_out = Console(highlight=False, soft_wrap=True)
_MINUTES = 3
TELL_SECONDS = 5.0
"""How far the lines are apart that say how far it is."""


class Progress:
    """How far a consumer's events are, in a line every few seconds; what is done sooner than that needs none."""

    def __init__(self, name: str, clock: "Clock") -> None:
        self._name = name
        self._clock = clock
        self._told = clock.monotonic()

    def tell(self, done: int, of: int) -> None:
        """So many of so many events are written."""
        now = self._clock.monotonic()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            _out.print(f"{self._name}: {done:,} of {of:,} events written")


@app.command()
def repair(
    name: Annotated[str | None, typer.Argument(help="A consumer; all of them when left out.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what differs.")] = False,
) -> None:
    """Explain what does not agree, and mend what is safe; exit code 1 when something is left."""
    from consumers.clock import SystemClock
    from orchestration.catalog import consumers
    from orchestration.event_log import instance_of
    from orchestration.local.stack import dagster_home
    from orchestration.repair import Repairer

    settings = Settings.load()
    known = consumers(settings)
    if name is not None and name not in known:
        raise ConfigError(f"there is no consumer '{name}': there are {', '.join(known) or 'none yet'}")
    home, clock, left = Path(os.environ.get("DAGSTER_HOME") or dagster_home(settings)), SystemClock(), 0
    admin = _admin(settings)
    with instance_of(home) as instance:
        for each in [name] if name else known:
            repairer = Repairer(instance, known[each], admin, clock, Progress(each, clock).tell)
            left += _show_only(each, repairer) if dry_run else _mend(each, repairer, clock)
    if left:
        raise typer.Exit(1)


def _admin(settings: Settings) -> "BrokerAdmin | WeirError":
    from consumers.brokers.admin import KafkaAdmin
    from orchestration.connection import kafka_options

    try:
        return KafkaAdmin(kafka_options(settings))
    except WeirError as error:
        return error


def _show_only(name: str, repairer: "Repairer") -> int:
    found = repairer.look()
    for each in found:
        _out.print(f"{name}: {each.where}: {each.explanation} {'Would be mended' if each.safe else 'For you'}: {each.action}")
    _agreed(name, not found)
    return len(found)


def _mend(name: str, repairer: "Repairer", clock: "Clock") -> int:
    """Mends until nothing is left that only time keeps from being mended."""
    outcomes: Sequence[Outcome] = []
    for attempt in range(_MINUTES):
        outcomes = repairer.mend(repairer.look())
        _agreed(name, not outcomes and not attempt)
        for each in outcomes:
            _out.print(f"{name}: {each.difference.where}: {each.difference.explanation} {each.said}")
        if not any(each.difference.kind == "events" and not each.mended for each in outcomes):
            break
        clock.sleep(60.0)
    return sum(not each.mended for each in outcomes)


def _agreed(name: str, agreed: bool) -> None:
    if agreed:
        _out.print(f"{name}: positions, group offsets and events agree")
