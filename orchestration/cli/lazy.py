"""A group of commands whose modules are imported only when they are run, so that `--help` costs nothing."""

from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from consumers.errors import WeirError

# What an operator can put right: one line, no traceback.
EXPECTED: tuple[type[Exception], ...] = (WeirError,)


class LazyGroup(TyperGroup):
    """Looks commands up in `commands_by_name`: name → (module with a typer `app`, one line of help)."""

    commands_by_name: ClassVar[dict[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(self.commands_by_name)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """A placeholder that carries the line of help; `resolve_command` brings the real one."""
        if cmd_name not in self.commands_by_name:
            return None
        return TyperCommand(name=cmd_name, help=self.commands_by_name[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begins with, imported now, and the remaining arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.commands_by_name:
            command = typer.main.get_command(import_module(self.commands_by_name[name][0]).app)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run; an expected error becomes one line on stderr and exit code 1, unless `--debug` was given."""
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"weir: {error}", err=True)
            raise typer.Exit(1) from None
