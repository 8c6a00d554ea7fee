"""Repeats what failed for a moment only: after pauses that grow, that are drawn at random so that many members do not come back
in step, and that come to an end. Knows no Kafka.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from consumers.clock import Clock
from consumers.metrics import Metrics

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """The first pause takes up to `first` seconds, each later one up to twice as long as the last, none more than `most`.

    Nothing is tried again later than `limit` seconds after the first try.
    """

    first: float = 0.1
    most: float = 2.0
    limit: float = 10.0

    def pause(self, tries: int, chance: random.Random) -> float:
        """Seconds to wait after `tries` failures in a row: half of the pause is certain, the other half is drawn."""
        longest = min(self.most, self.first * 2.0 ** min(tries - 1, 30))
        return longest * chance.uniform(0.5, 1.0)


class Retry:
    """Calls again what raised something that passes. Counts `retries`."""

    def __init__(self, clock: Clock, chance: random.Random, metrics: Metrics, backoff: Backoff) -> None:
        self._clock = clock
        self._chance = chance
        self._metrics = metrics
        self._backoff = backoff

    def __call__(self, what: str, attempt: Callable[[], T], passing: Callable[[Exception], bool]) -> T:
        """What `attempt` returns in the end. Raises its last error: the first that does not pass, or that came too late."""
        tries, deadline = 0, self._clock.monotonic() + self._backoff.limit
        while True:
            tries += 1
            try:
                return attempt()
            except Exception as error:
                pause = self._backoff.pause(tries, self._chance)
                if not passing(error) or self._clock.monotonic() + pause > deadline:
                    raise
                # Not the error in words: it may be a user's, with a secret in it.
                log.debug("%s: %s; trying again in %.2f s", what, type(error).__name__, pause)
            self._metrics.count("retries")
            self._clock.sleep(pause)
