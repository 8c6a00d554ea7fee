"""Where a member touches the world: every call of broker, producer or database, on its way there and on its way back.

At a crossing the process may die, or stop for a while, during which the rest of the world goes on.
"""

from collections.abc import Callable
from typing import Any

from tests.killing import Killed

Note = Callable[[str], None]


class Crossings:
    """One member's. Counts, and does what was ordered for a number that is still to come."""

    def __init__(self, note: Note) -> None:
        self.note = note
        self.count = 0
        self.dead = False
        self._orders: dict[int, tuple[str, Callable[[], None]]] = {}

    def cross(self, where: str) -> None:
        """Called on both ways of every call. The dead do nothing, also not in a `finally`."""
        if self.dead:
            raise Killed
        self.count += 1
        if self.count in self._orders:
            what, act = self._orders.pop(self.count)
            self.note(f"{what} {where}")
            act()

    def order(self, after: int, what: str, act: Callable[[], None]) -> None:
        """Do something at the n-th crossing from now (n from 1)."""
        self._orders[self.count + after] = (what, act)

    def kill(self) -> None:
        """Die here."""
        self.dead = True
        raise Killed

    def disarm(self) -> None:
        """Forget all orders."""
        self._orders.clear()


class Watched:
    """Stands for a consumer or a producer: every call of its methods crosses twice, and those in `told` are noted."""

    def __init__(self, inner: Any, crossings: Crossings, told: frozenset[str]) -> None:
        self._inner = inner
        self._crossings = crossings
        self._told = told

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        crossings, told = self._crossings, name in self._told

        def call(*args: Any, **kwargs: Any) -> Any:
            crossings.cross(f"before {name}")
            try:
                result = found(*args, **kwargs)
            except Exception as error:
                crossings.note(f"{name} raised {type(error).__name__}: {error}")
                raise
            if told:
                crossings.note(f"{name} {shown(args[0]) if args else ''}")
            crossings.cross(f"after {name}")
            return result

        self.__dict__[name] = call
        return call


def shown(value: Any) -> str:
    """For the trace: the same in every process, so never in a set's order."""
    if isinstance(value, dict):
        return " ".join(f"{each.partition}:{shown(value[each])}" for each in sorted(value))
    if isinstance(value, frozenset):
        return " ".join(str(each.partition) for each in sorted(value))
    if hasattr(value, "start") and hasattr(value, "end"):
        return f"[{value.start},{value.end})"
    return str(value) if isinstance(value, int | float | str) else ""
