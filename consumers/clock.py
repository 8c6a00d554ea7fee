"""The only module that knows what time it is. Everything else is handed a `Clock`, so tests advance time instead of waiting."""

import threading
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time, monotonic time and waiting."""

    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def wait(self, condition: threading.Condition, seconds: float) -> bool:
        """Wait for a held condition to be notified, at most `seconds`; whether it may have been."""
        ...


class SystemClock:
    """The machine's own clock."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, condition: threading.Condition, seconds: float) -> bool:
        return condition.wait(seconds)


class ManualClock:
    """A clock that moves only when it is told to; `sleep` advances it."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._lock = threading.Lock()

    def time(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def wait(self, condition: threading.Condition, seconds: float) -> bool:
        """Not at all: nobody else is there to notify, and time does not pass by itself."""
        return False

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        with self._lock:
            self._now += seconds


def moment(seconds: float) -> str:
    """A time since the epoch for people: `2026-01-31 05:00:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
