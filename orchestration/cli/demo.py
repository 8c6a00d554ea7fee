"""`weir demo`: the main job from empty to checked tables, run by Dagster, with progress bars."""

import json
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from consumers.clock import SystemClock
from orchestration.local.errors import LocalError
from orchestration.settings import Settings

if TYPE_CHECKING:
    from orchestration.demo.verify import Verdict

app = typer.Typer(add_completion=False)
_out = Console(highlight=False, soft_wrap=True)


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Verify and exit; exit code 1 when something differs.")] = False,
    malformed: Annotated[float, typer.Option(min=0, max=1, help="Share of broken records, such as 0.01.")] = 0.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the Dagster UI; 0 takes a free one.")] = 3000,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete this home's topics and tables first.")] = False,
    minutes: Annotated[float, typer.Option(min=1, help="Give up after this long.")] = 15.0,
) -> None:
    """Fill the sample topics, let Dagster stage and compute everything, and compare the result with the source files."""
    from orchestration.demo.job import Demo
    from orchestration.local import cluster
    from orchestration.local.stack import running_dagster, unfinished_runs, wait_for_interrupt

    settings = Settings.load()
    _prepare(settings, malformed, fresh)
    with ExitStack() as stack:
        kafka = cluster.up(settings)
        if kafka.started:
            stack.callback(cluster.down, settings)
        _out.print(f"Kafka    {kafka.bootstrap_servers}")
        job = Demo(settings, kafka.bootstrap_servers, malformed, SystemClock())
        with _bars() as bars:
            produced = job.produce(_Shown(bars))
        dagster = stack.enter_context(running_dagster(settings, kafka.bootstrap_servers, 0 if once else port))
        _out.print(f"Dagster  {dagster.url}   (output in {dagster.log})")

        def busy() -> list[str]:
            dagster.require_alive()
            return [name for name in unfinished_runs(dagster).values() if not name.startswith("ingest_")]

        with _bars() as bars:
            job.wait(_Shown(bars), busy, minutes * 60)
        passed = _show(job.verdicts(produced))
        if not once:
            _out.print(f"\nLook around at {dagster.url}; Ctrl-C ends everything that this command started.")
            wait_for_interrupt(dagster, SystemClock())
            _out.print("Stopping")
    if not passed:
        raise typer.Exit(1)


def _prepare(settings: Settings, malformed: float, fresh: bool) -> None:
    """Start from a home that holds the same demo, or nothing."""
    from orchestration.local import cluster

    wanted, record = {"malformed": malformed}, settings.home / "demo.json"
    if fresh:
        cluster.down(settings)
        for folder in (settings.home / "kafka", settings.home / "dagster", settings.tables):
            shutil.rmtree(folder, ignore_errors=True)
    elif record.exists() and json.loads(record.read_text()) != wanted:
        raise LocalError(
            f"{settings.home} holds a demo with {record.read_text()}, not {json.dumps(wanted)}. --fresh deletes its topics "
            "and tables; WEIR_HOME names another place"
        )
    settings.home.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(wanted))


def _bars() -> Progress:
    columns = (TextColumn("{task.description:<26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=_out)


class _Shown:
    """Progress as bars, one for each name."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=None)
        self._bars.update(self._tasks[name], completed=done, total=total or None)


def _show(verdicts: "list[Verdict]") -> bool:
    table = Table("", "expected", "found", "")
    for verdict in verdicts:
        table.add_row(verdict.what, verdict.expected, verdict.found, "ok" if verdict.passed else "DIFFERS")
    _out.print(table)
    for verdict in verdicts:
        for difference in verdict.differences:
            _out.print(f"{verdict.what}: {difference}")
    return all(verdict.passed for verdict in verdicts)
