"""Storage that misbehaves, inside a child: puts that land and are not acknowledged, that fail, or that take long."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from consumers.clock import SystemClock

_WRITER = "consumers.processing.strategies.stage.writer"
Kind = Literal["unacknowledged", "fails", "slow"]


@dataclass(frozen=True)
class StorageFault:
    """Every `every`-th put misbehaves, `most` times in all; a put is a file of rows or a version of a table's log.

    `where` is a part of the path of those that are meant. `seconds` is how long a slow one takes.
    """

    kind: Kind
    every: int
    most: int
    where: str = ""
    seconds: float = 1.0

    def install(self, fired: Callable[[], None]) -> None:
        """Wrap this process's puts; `fired` is called at each fault."""
        turn = _Turn(self, fired)
        turn.wrap(DeltaTable, "create_write_transaction", lambda table, *_: str(table.table_uri))
        if self.kind != "unacknowledged":  # a file that is written again under another name is nobody's
            turn.wrap(import_module(_WRITER), "write_file", lambda path, *_: str(path))


class _Turn:
    def __init__(self, fault: StorageFault, fired: Callable[[], None]) -> None:
        self._fault, self._fired = fault, fired
        self._calls = self._times = 0

    def wrap(self, owner: object, name: str, path: Callable[..., str]) -> None:
        """Put the fault around a put; `path` says of its arguments where it writes."""
        put = getattr(owner, name)

        def misbehaving(*args: Any, **named: Any) -> Any:
            if self._fault.where not in path(*args) or not self._due():
                return put(*args, **named)
            self._fired()
            return self._misbehave(lambda: put(*args, **named))

        setattr(owner, name, misbehaving)

    def _due(self) -> bool:
        self._calls += 1
        due = self._times < self._fault.most and self._calls % self._fault.every == 0
        self._times += due
        return due

    def _misbehave(self, put: Callable[[], Any]) -> Any:
        if self._fault.kind == "fails":
            raise OSError(errno.EIO, "planted: the put failed")
        if self._fault.kind == "slow":
            SystemClock().sleep(self._fault.seconds)
            return put()
        put()
        # What a client says that tried again, and met its own commit; and one that gave up waiting.
        raise CommitFailedError("planted: the version is there already") if self._times % 2 else OSError("planted: no answer")
