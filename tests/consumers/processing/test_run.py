"""`run` over the in-memory broker: what a mistake in `build` leads to."""

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
