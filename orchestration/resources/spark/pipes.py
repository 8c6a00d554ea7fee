"""An application's way to talk to the run: Dagster Pipes over files in a folder that both see."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster._core.pipes.context import build_external_execution_context_data
from dagster_pipes import PipesException, PipesExtras, PipesMessage

from orchestration.resources.spark.runtime import Context


class Heard(dg.PipesMessageHandler):
    """Hands on what the application says, and remembers the error that it ended with."""

    error: PipesException | None = None

    def handle_message(self, message: PipesMessage) -> None:
        """Called for every message, in order."""
        if message["method"] == "closed":
            self.error = (message["params"] or {}).get("exception")
        super().handle_message(message)

    @property
    def result(self) -> str | None:
        """The JSON of the result that was reported, None so far."""
        said = [message["result"] for message in self.get_custom_messages() if isinstance(message, dict) and "result" in message]
        return str(said[-1]) if said else None


@contextmanager
def exchange(context: Context, folder: Path, extras: PipesExtras) -> Iterator[tuple[list[str], Heard]]:
    """The arguments that tell an application where to read and write, and what was heard of it: all, after the block.

    Arguments, and not the environment, which a driver on a cluster does not inherit.
    Dagster's own `open_pipes_session` would demand an event for every output of the asset, which a run of some windows has not.
    """
    reader = dg.PipesFileMessageReader(str(folder / "messages"))
    heard = Heard(context, reader)
    data = build_external_execution_context_data(context, extras)
    injector = dg.PipesFileContextInjector(str(folder / "context"))
    with injector.inject_context(data) as injected, heard.handle_messages() as listening:
        session = dg.PipesSession(data, heard, injected, listening, context)
        yield [word for argument in session.get_bootstrap_cli_arguments().items() for word in argument], heard
