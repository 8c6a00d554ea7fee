"""Whether a topic is still the one that positions belong to."""

import pytest

from consumers.clock import ManualClock
from consumers.errors import BrokerError, OwnershipLost
from consumers.processing.incarnation import Incarnation


def answers(*given: str | BrokerError) -> tuple[Incarnation, ManualClock]:
    """One that is told these, one after the other, the last for ever."""
    left, clock = list(given), ManualClock()

    def ask() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    return Incarnation(ask, clock), clock


def test_the_same_id_and_brokers_without_ids_are_believed() -> None:
    answers("a")[0].require("a")
    answers("")[0].require("a")
    answers("a")[0].require("")


def test_another_id_is_another_topic() -> None:
    with pytest.raises(OwnershipLost, match="its id was a, it is b now"):
        answers("b")[0].require("a")


def test_a_cluster_that_is_away_for_a_while_is_asked_again() -> None:
    incarnation, clock = answers(*[BrokerError("away")] * 30, "a")
    incarnation.require("a")
    assert clock.monotonic() == 30


def test_a_cluster_that_stays_away_ends_the_run() -> None:
    incarnation, clock = answers(BrokerError("away"))
    with pytest.raises(BrokerError, match="away"):
        incarnation.require("a")
    assert 60 <= clock.monotonic() <= 62
