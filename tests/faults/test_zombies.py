"""Two processes with the same partitions, and members that come back from the dead: nothing is lost, nothing is there twice."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from consumers.staging.log import StagedCommit, commits
from tests.faults.child import POINTS, Order
from tests.faults.ledger import SMALL_BATCHES, Sent, consumer_in, new_topic, offsets_by_partition, produce
from tests.faults.oracle import Findings, audit
from tests.faults.process import Child, child

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.timeout(240)]

PARTITIONS = 3
CONFLICTS = 10
SHORT_SESSION = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500"}


def takeovers(found: Sequence[StagedCommit]) -> int:
    """How often partitions were taken over."""
    return sum(commit.kind == "acquire" for commit in found)


def members_after(found: Sequence[StagedCommit], member: str) -> int:
    """Batches of other members that were committed after the first of this one."""
    batches = [commit.member for commit in found if commit.kind == "batch"]
    return sum(other != member for other in batches[batches.index(member) :])


def won(one: Child) -> bool:
    """Whether it ended caught up; otherwise because it left the partitions to the other."""
    code = one.end()
    assert code == 0 or (code == 3 and "Look for a second deployment" in one.said[-1]), one.said[-3:]
    return code == 0


def test_of_two_processes_on_the_same_partitions_one_wins(kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, PARTITIONS)
    ledger: list[Sent] = []
    consumer = consumer_in(tmp_path, topic, batch=SMALL_BATCHES)
    order = Order(kafka, consumer.model_dump_json(by_alias=True))
    rounds = conflicts = wins = 0
    while conflicts < CONFLICTS:
        rounds += 1
        assert rounds <= CONFLICTS, f"{conflicts} conflicts in {rounds - 1} rounds"
        ledger += produce(kafka, topic, 1_500, PARTITIONS, first=len(ledger))
        before = takeovers(commits(consumer.staged))
        first, second = replace(order, member="first"), replace(order, member="second", group="weir-other")
        with child(first, tmp_path / "first.log") as one, child(second, tmp_path / "second.log") as two:
            winners = won(one) + won(two)
        wins += winners
        conflicts += takeovers(commits(consumer.staged)) - before - 2
        if winners:
            assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()
    assert wins
    with child(order, tmp_path / "last.log") as last:
        assert last.end() == 0, last.said
    assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_wakes_up_after_another_took_over_repeats_nothing(point: str, kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, PARTITIONS)
    ledger = produce(kafka, topic, 1_500, PARTITIONS)
    consumer = consumer_in(tmp_path, topic, batch=SMALL_BATCHES)
    order = Order(kafka, consumer.model_dump_json(by_alias=True))
    call = 1 if "takeover" in point else 3
    asleep = replace(order, member="zombie", point=point, call=call, fault=signal.SIGSTOP)
    with child(asleep, tmp_path / "zombie.log") as zombie:
        zombie.wait_until_stopped()
        with child(replace(order, member="heir", group="weir-other"), tmp_path / "heir.log") as heir:
            assert heir.end() == 0, heir.said
        assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()
        zombie.signal(signal.SIGCONT)
        assert zombie.end() == 0, zombie.said
    assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()


@pytest.mark.parametrize("point", ["before the dead-letter commit", "before the staged commit"])
def test_a_member_stopped_past_its_session_repeats_nothing(point: str, kafka: str, tmp_path: Path) -> None:
    topic = new_topic(kafka, PARTITIONS)
    ledger = produce(kafka, topic, 3_000, PARTITIONS)
    consumer = consumer_in(tmp_path, topic, batch=SMALL_BATCHES)
    order = Order(kafka, consumer.model_dump_json(by_alias=True), options=SHORT_SESSION, until_caught_up=False)
    asleep = replace(order, member="zombie", point=point, call=3, fault=signal.SIGSTOP)
    with child(asleep, tmp_path / "zombie.log") as zombie:
        zombie.wait_until_stopped()
        with child(replace(order, member="heir"), tmp_path / "heir.log") as heir:
            heir.wait_for("committed")
            zombie.signal(signal.SIGCONT)
            ledger += produce(kafka, topic, 1_000, PARTITIONS, first=len(ledger))
            for member in (zombie, heir):
                member.signal(signal.SIGTERM)
            assert (zombie.end(), heir.end()) == (0, 0), (zombie.said[-1], heir.said[-1])
        assert members_after(commits(consumer.staged), "zombie") > 0
    with child(replace(order, until_caught_up=True), tmp_path / "last.log") as last:
        assert last.end() == 0, last.said
    assert audit(consumer, ledger, offsets_by_partition(ledger)) == Findings()
