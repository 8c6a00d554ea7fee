"""`run` over the in-memory broker: what a mistake in `build` leads to."""

import gc
from collections.abc import Iterator

import pytest

from consumers.brokers.memory import MemoryCluster, MemoryConsumer
from consumers.clock import ManualClock
from consumers.errors import FatalError
from consumers.processing.context import Context, Surroundings
from consumers.processing.group_positions import GroupPositions
from consumers.processing.processor import Limits
from consumers.processing.run import run
from consumers.processing.strategies.commit_positions import CommitPositions
from consumers.processing.subscription import Subscription


def test_a_build_without_a_return_ends_the_run_at_once() -> None:
    def build(context: Context) -> None:
        CommitPositions(context.commit)

    cluster = MemoryCluster(ManualClock())
    cluster.create_topic("t")
    member = MemoryConsumer(cluster, "t", "g")
    with pytest.raises(FatalError, match="`build` returned no strategy"):
        run(
            Subscription("g", "t"),
            member,
            GroupPositions(member),
            build,  # type: ignore[arg-type]
            limits=Limits(max_seconds=60),
            around=Surroundings(clock=cluster.clock),
        )


@pytest.fixture
def usual_threshold() -> Iterator[tuple[int, int, int]]:
    """Python's own, whatever libraries have made of it in this process."""
    found, usual = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*usual)
    yield usual
    gc.set_threshold(*found)


def test_garbage_is_looked_for_rarely_while_it_runs_and_as_before_afterwards(usual_threshold: tuple[int, int, int]) -> None:
    inside = []

    def build(context: Context) -> CommitPositions:
        inside.append(gc.get_threshold()[0])
        return CommitPositions(context.commit)

    cluster = MemoryCluster(ManualClock())
    cluster.create_topic("t")
    member = MemoryConsumer(cluster, "t", "g")
    run(
        Subscription("g", "t"),
        member,
        GroupPositions(member),
        build,
        limits=Limits(until_caught_up=True),
        around=Surroundings(clock=cluster.clock),
    )
    assert inside == [100_000]
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual_threshold, 0)
