"""Which windows of an input a window of the output is computed from.

A window's key is text that sorts as time does: `2013-01-31` for a day, `2013-01-31-05` for an hour.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

_DAY, _HOUR = "%Y-%m-%d", "%Y-%m-%d-%H"
_AFTER = "~"
"""Sorts after whatever continues a key."""


@dataclass(frozen=True)
class Reach:
    """The windows of an input that a window reaches: the same one, or what these add.

    - `contained`: the input's windows are hours of the output's days.
    - `look_back`: the windows before, so many of the output's.
    - `up_to`: all windows before.
    - `whole`: all of the input, which has no windows.
    """

    contained: bool = False
    look_back: int = 0
    up_to: bool = False
    whole: bool = False

    @property
    def same(self) -> bool:
        """Whether a window is computed from itself alone."""
        return self == SAME

    def own(self, window: str) -> str:
        """The output's window that an input's window belongs to."""
        return window[: len("2013-01-31")] if self.contained else window

    def of(self, window: str, held: Sequence[str]) -> list[str]:
        """Of the windows that an input holds (ascending), those that the output's `window` is computed from."""
        if self.whole:
            return list(held)
        low = 0 if self.up_to else bisect_left(held, _before(window, self.look_back))
        high = bisect_right(held, window + _AFTER if self.contained else window)
        return list(held[low:high])

    def contents(self, windows: Iterable[str], held: Mapping[str, str]) -> dict[str, str]:
        """For each of the output's windows an identity of what an input holds of it (`held`: its window → identity)."""
        if self.same:
            return {window: held.get(window, "") for window in windows}
        keys = sorted(held)
        if self.up_to and not self.whole:
            return self._running(windows, keys, held)
        if self.whole:
            return dict.fromkeys(windows, _identity(keys, held))
        return {window: _identity(self.of(window, keys), held) for window in windows}

    def _running(self, windows: Iterable[str], keys: Sequence[str], held: Mapping[str, str]) -> dict[str, str]:
        """One pass, whose cost does not grow with the square of the windows."""
        running, done, found = hashlib.sha256(), 0, {}
        for window in sorted(windows):
            end = bisect_right(keys, window + _AFTER if self.contained else window)
            for key in keys[done:end]:
                running.update(f"{key}={held[key]}\0".encode())
            done = end
            found[window] = running.hexdigest()[:16]
        return found


SAME = Reach()
"""A window is computed from itself alone."""


def digest(parts: Iterable[str]) -> str:
    """16 hex digits of some texts in their order."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _identity(keys: Sequence[str], held: Mapping[str, str]) -> str:
    return digest(f"{key}={held[key]}" for key in keys) if keys else ""


def _before(window: str, count: int) -> str:
    """The key of the window so many before; of one that is no time the same, and before the first year the least of all."""
    if not count:
        return window
    hourly = len(window) > len("2013-01-31")
    form = _HOUR if hourly else _DAY
    step = timedelta(hours=count) if hourly else timedelta(days=count)
    try:
        return f"{datetime.strptime(window, form) - step:{form}}".zfill(len(window))
    except ValueError:
        return window
    except OverflowError:
        return ""
