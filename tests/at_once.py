"""Threads that work in rounds beside each other, for tests of what must not disturb one another."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from consumers.clock import SystemClock


class AtOnce:
    """Threads that work in rounds until the first has done `rounds`, and `seconds` have passed, and each of the others has done
    two; a failure of one is the test's.
    """

    def __init__(self, seconds: float, rounds: int) -> None:
        self.clock = SystemClock()
        self.until = self.clock.monotonic() + seconds
        self.least = rounds
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self.rounds: Counter[str] = Counter()

    def run(self, leading: Callable[[int], None], others: Mapping[str, Callable[[], None]]) -> None:
        """Raises the first failure when all have ended."""
        threads = [threading.Thread(target=self._repeat, args=other) for other in others.items()]
        for thread in threads:
            thread.start()
        try:
            count = 0
            while not self.failures and not self._enough(count, others):
                leading(count)
                count += 1
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        if self.failures:
            raise self.failures[0]

    def _enough(self, count: int, others: Mapping[str, Callable[[], None]]) -> bool:
        return count >= self.least and self.clock.monotonic() >= self.until and all(self.rounds[name] >= 2 for name in others)

    def _repeat(self, name: str, work: Callable[[], None]) -> None:
        while not self.over.is_set() and not self.failures:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - told by the main thread
                self.failures.append(error)
            self.rounds[name] += 1
