"""What the simulation has found once, as short schedules."""

import pytest

from consumers.brokers.memory import MemoryCluster, MemoryTransactionalProducer
from consumers.clock import ManualClock
from consumers.errors import BrokerError
from tests.simulation.schedule import Action, Pipeline, Setup
from tests.simulation.simulation import Outcome, run


def schedule(pipeline: Pipeline, *actions: Action, **changes: object) -> Outcome:
    usual = {"poll_records": 8, "batch_records": 6, "latency_seconds": 2.0, "revoke_seconds": 1.0, "compact": False, "room": 40}
    shape = {"seed": 1, "protocol": "cooperative", "static": False, "partitions": 2, "members": 2, "shape": 1, "calm": False}
    return run(Setup(**{**usual, **shape, "pipeline": pipeline, **changes}), actions)  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_a_static_member_that_comes_back_reads_on(protocol: str) -> None:
    coming_and_going = Action("join"), Action("all", (6, 1.0)), Action("leave", (0,)), Action("write", (0, 3, 0.1))
    assert not schedule("database", *coming_and_going, Action("join"), protocol=protocol, static=True, calm=True).findings


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_what_a_static_member_was_giving_back_when_it_died_is_given_to_others(protocol: str) -> None:
    """Wherever it dies, and is started again within its session."""
    writing = Action("write", (0, 3, 0.1)), Action("write", (1, 3, 0.1))
    moving = *writing, Action("join"), Action("all", (4, 0.3)), Action("join")
    for crossing in range(1, 40):
        dying = Action("arm_kill", (0, crossing)), Action("all", (4, 0.3)), Action("join"), *writing
        outcome = schedule("chain", *moving, *dying, protocol=protocol, static=True, latency_seconds=8.0)
        assert not outcome.findings


def test_the_group_hears_of_positions_although_a_commit_of_its_offsets_failed() -> None:
    fails = Action("fault", ("commit", "fail", 150))
    assert not schedule("chain", Action("write", (0, 4, 0.1)), Action("join"), fails, Action("all", (6, 3.0))).findings


@pytest.mark.parametrize("pipeline", ["transactions", "database"])
def test_no_transaction_ends_between_the_parts_of_an_unfolded_batch(pipeline: Pipeline) -> None:
    """A batch of eight is unfolded into four parts, each of which would fill a transaction; wherever the member dies."""
    reading = Action("write", (0, 8, 0.1)), Action("join"), Action("all", (1, 0.0))
    for crossing in range(1, 80):
        dying = Action("arm_kill", (0, crossing)), Action("step", (0, 5, 0.0))
        assert not schedule(pipeline, *reading, *dying, batch_records=2, latency_seconds=8.0, shape=0).findings


def test_no_transaction_begins_in_one_that_could_not_be_ended() -> None:
    cluster = MemoryCluster(ManualClock())
    producer = MemoryTransactionalProducer(cluster, "id")
    producer.begin()
    cluster.faults.fail("abort_transaction", fatal=True)
    with pytest.raises(BrokerError):
        producer.abort_transaction()
    with pytest.raises(BrokerError, match="is open already"):
        producer.begin()
    MemoryTransactionalProducer(cluster, "id").begin()
