"""Transient failures are repeated with growing, drawn pauses, and only for so long."""

import random
from collections.abc import Callable

import pytest

from consumers.brokers.retry import Backoff, Retry
from consumers.clock import ManualClock
from consumers.metrics import Counter, NoMetrics, Tags

BACKOFF = Backoff(first=1.0, most=4.0, limit=10.0)


class Counted(NoMetrics):
    """How often something was counted."""

    def __init__(self) -> None:
        self.retries = 0.0

    def count(self, name: Counter, value: float = 1, tags: Tags | None = None) -> None:
        assert name == "retries"
        self.retries += value


class Slept(ManualClock):
    """Remembers its pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        super().sleep(seconds)


def failing(times: int, error: Exception) -> Callable[[], str]:
    """Fails so often, then answers."""
    left = [times]

    def attempt() -> str:
        if left[0]:
            left[0] -= 1
            raise error
        return "answer"

    return attempt


def is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError)


def test_what_passes_is_tried_again_until_there_is_an_answer() -> None:
    clock, metrics = Slept(), Counted()
    retry = Retry(clock, random.Random(1), metrics, BACKOFF)
    assert retry("it", failing(3, TimeoutError()), is_timeout) == "answer"
    assert metrics.retries == len(clock.pauses) == 3


def test_what_does_not_pass_is_raised_at_once() -> None:
    clock = Slept()
    with pytest.raises(ValueError, match="no"):
        Retry(clock, random.Random(1), Counted(), BACKOFF)("it", failing(1, ValueError("no")), is_timeout)
    assert clock.pauses == []


def test_it_ends_with_the_last_error_before_the_limit() -> None:
    clock, metrics = Slept(), Counted()
    with pytest.raises(TimeoutError):
        Retry(clock, random.Random(1), metrics, BACKOFF)("it", failing(1_000, TimeoutError()), is_timeout)
    assert clock.monotonic() <= BACKOFF.limit
    assert metrics.retries == len(clock.pauses) > 2


@pytest.mark.parametrize(("tries", "longest"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0), (5_000, 4.0)])
def test_pauses_double_up_to_the_longest_and_half_of_each_is_drawn(tries: int, longest: float) -> None:
    drawn = [BACKOFF.pause(tries, random.Random(seed)) for seed in range(200)]
    assert longest / 2 <= min(drawn) < longest * 0.55
    assert longest * 0.95 < max(drawn) <= longest


def test_the_same_chance_gives_the_same_pauses() -> None:
    def pauses(seed: int) -> list[float]:
        clock = Slept()
        Retry(clock, random.Random(seed), Counted(), BACKOFF)("it", failing(4, TimeoutError()), is_timeout)
        return clock.pauses

    assert pauses(7) == pauses(7) != pauses(8)
