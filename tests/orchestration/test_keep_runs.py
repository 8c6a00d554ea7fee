from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import dagster as dg
import pytest
from dagster._core.storage.tags import SENSOR_NAME_TAG

from consumers.clock import Clock, ManualClock, SystemClock
from consumers.config import Consumer
from consumers.errors import DataLoss, InvalidLimit
from consumers.types import OffsetRange, TopicPartition
from orchestration import heartbeat
from orchestration.catalog import CONSUMER_TAG, KILL_AFTER_SECONDS, ingestion_run_config
from orchestration.heartbeat import Beat
from orchestration.sensors.losses import ACCEPTED_TAG
from orchestration.sensors.runs import Runs, blocked, end_dead, records_of, runs_of
from tests.orchestration.staged_tables import Tables, consumer_in
from tests.orchestration.stored import on_disk  # noqa: F401 - it is the fixture `instance`

LIMIT = heartbeat.dead_after(10.0)


def run(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
    consumer: str = "orders",
    config: dict[str, object] | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A run in a state, that was started if it is."""

    @dg.op(name=f"stage_{consumer}", pool=f"ingest_{consumer}")
    def op() -> None: ...

    @dg.job(name=f"ingest_{consumer}")
    def job() -> None:
        op()

    made = instance.create_run_for_job(
        job, status=dg.DagsterRunStatus.NOT_STARTED, tags={CONSUMER_TAG: consumer, **tags}, run_config=config
    )
    if status == dg.DagsterRunStatus.STARTED:
        report(instance, made.run_id, dg.DagsterEventType.RUN_START)
    elif status != dg.DagsterRunStatus.NOT_STARTED:
        report(instance, made.run_id, dg.DagsterEventType.RUN_START)
        report(instance, made.run_id, dg.DagsterEventType(f"PIPELINE_{status.value}"))
    return made.run_id


def report(instance: dg.DagsterInstance, run_id: str, kind: dg.DagsterEventType, after: float = 0.0) -> None:
    """Dagster hears of it, as of something that happened so many seconds after now."""
    event = dg.DagsterEvent(event_type_value=kind.value, job_name="ingest_orders")
    instance.report_dagster_event(event, run_id=run_id, timestamp=SystemClock().time() + after)


def failed(instance: dg.DagsterInstance, error: Exception) -> str:
    """A run of the job that failed with an error."""

    @dg.op
    def fails() -> None:
        raise error

    @dg.job(name="ingest_orders", run_tags={CONSUMER_TAG: "orders"})
    def job() -> None:
        fails()

    return job.execute_in_process(instance=instance, raise_on_error=False).run_id


def seen(
    instance: dg.DagsterInstance, consumer: Consumer, working: frozenset[str] = frozenset(), switched_on: float = 0.0
) -> Runs:
    return runs_of(instance, consumer, records_of(instance, consumer), working, switched_on, SystemClock())


def ended(instance: dg.DagsterInstance, consumer: Consumer, clock: Clock) -> list[str]:
    return end_dead(instance, consumer, records_of(instance, consumer), clock)


def test_runs_of_the_consumer_are_members_and_those_of_others_are_not(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    run(instance, dg.DagsterRunStatus.STARTED, "others")
    queued = run(instance, dg.DagsterRunStatus.NOT_STARTED)
    newest = run(instance, dg.DagsterRunStatus.STARTED, tags={SENSOR_NAME_TAG: "keep_orders"})
    found = seen(instance, consumer)
    assert {m.run: (m.state, m.ours) for m in found.members} == {queued: ("queued", False), newest: ("working", True)}
    assert (found.newest, found.failures) == (newest, 0)


def test_a_member_hands_over_before_the_end_of_its_own_time(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    run(instance, dg.DagsterRunStatus.STARTED)
    [by_default] = seen(instance, consumer).members
    assert by_default.leaves_in is not None and 1600 < by_default.leaves_in <= 1740
    run(instance, dg.DagsterRunStatus.STARTED, config=ingestion_run_config("orders", False, max_seconds=20))
    [short, _] = seen(instance, consumer).members
    assert short.leaves_in is not None and short.leaves_in <= 10


@pytest.mark.parametrize(
    ("started_with", "leaves_within", "outdated"),
    [(3600, (1600, 1740), True), (1800, (1600, 1740), False), (900, (700, 840), False)],
)
def test_a_member_keeps_the_time_that_it_was_started_with_unless_less_is_allowed_by_now(
    instance: dg.DagsterInstance, consumer: Consumer, started_with: int, leaves_within: tuple[int, int], outdated: bool
) -> None:
    run(instance, dg.DagsterRunStatus.STARTED, tags={"dagster/max_runtime": str(started_with + KILL_AFTER_SECONDS)})
    [member] = seen(instance, consumer).members
    least, most = leaves_within
    assert member.leaves_in is not None and least < member.leaves_in <= most
    assert member.outdated is outdated


def test_a_run_whose_time_was_chosen_at_its_launch_is_never_outdated(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    longer = ingestion_run_config("orders", False, max_seconds=7200)
    run(instance, dg.DagsterRunStatus.STARTED, config=longer, tags={"dagster/max_runtime": "1920"})
    [member] = seen(instance, consumer).members
    assert not member.outdated and member.leaves_in is not None and member.leaves_in > 1800


def test_a_member_hands_over_earlier_where_runs_start_slowly(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    slow = run(instance, dg.DagsterRunStatus.NOT_STARTED)
    report(instance, slow, dg.DagsterEventType.RUN_START, after=100.0)
    [member] = seen(instance, consumer).members
    assert member.leaves_in is not None and 1590 < member.leaves_in <= 1601


def test_a_run_that_waited_long_for_others_says_nothing_of_how_slowly_runs_start(
    instance: dg.DagsterInstance, consumer: Consumer
) -> None:
    queued = run(instance, dg.DagsterRunStatus.NOT_STARTED)
    report(instance, queued, dg.DagsterEventType.RUN_START, after=3600.0)
    [member] = seen(instance, consumer).members
    assert member.leaves_in == 1740


def test_failures_count_until_a_run_that_committed_or_ended_well(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    run(instance, dg.DagsterRunStatus.FAILURE)
    working = run(instance, dg.DagsterRunStatus.FAILURE)
    run(instance, dg.DagsterRunStatus.FAILURE)
    run(instance, dg.DagsterRunStatus.FAILURE)
    assert seen(instance, consumer, frozenset({working})).failures == 2
    assert seen(instance, consumer).failures == 4
    run(instance, dg.DagsterRunStatus.SUCCESS)
    assert seen(instance, consumer).failures == 0


def test_the_last_error_is_the_innermost_one(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    failed(instance, ValueError("no space left on device"))
    found = seen(instance, consumer)
    assert found.failures == 1 and "no space left on device" in found.last_error and found.paused == ""


@pytest.mark.parametrize("error", [InvalidLimit("90 of 100 records are invalid"), DataLoss("offsets 3 to 7 are gone")])
def test_what_a_person_has_to_decide_pauses_the_consumer_until_the_sensor_is_switched_on_again(
    instance: dg.DagsterInstance, consumer: Consumer, error: Exception
) -> None:
    before = SystemClock().time()
    limited = failed(instance, error)
    run(instance, dg.DagsterRunStatus.SUCCESS)
    assert str(error) in seen(instance, consumer, frozenset({limited}), switched_on=before).paused
    assert seen(instance, consumer, switched_on=SystemClock().time()).paused == ""


def test_a_loss_that_the_definition_accepts_by_now_pauses_nothing(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    failed(instance, DataLoss("offsets 3 to 7 are gone"))
    assert seen(instance, consumer_in(tmp_path, on_data_loss="record")).paused == ""


LOST = DataLoss("orders/0: the topic's retention has taken records: offsets 3 to 7 (5 records at most).")


def test_a_loss_that_was_accepted_since_pauses_nothing_although_the_next_one_may_not_be(
    instance: dg.DagsterInstance, consumer: Consumer
) -> None:
    tables = Tables(consumer)
    tables.acquire(0)
    first = failed(instance, LOST)
    assert "offsets 3 to 7" in seen(instance, consumer).paused
    taken = tables.acquire(8, lost=OffsetRange(3, 8))
    tables.batch(8, 9, {"2024-01-01": [8]})
    assert seen(instance, consumer).paused == ""
    record = instance.get_run_record_by_id(first)
    assert record is not None and record.dagster_run.tags[ACCEPTED_TAG] == str(taken.version)
    failed(instance, LOST)
    assert "offsets 3 to 7" in seen(instance, consumer).paused


def test_a_loss_is_not_accepted_by_what_happens_in_other_partitions(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    failed(instance, LOST)
    other = Tables(consumer, tp=TopicPartition("orders", 1))
    other.acquire(5, lost=OffsetRange(3, 5))
    other.batch(5, 6, {"2024-01-01": [5]})
    assert "offsets 3 to 7" in seen(instance, consumer).paused


def test_a_loss_is_accepted_by_a_move_of_the_position(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    failed(instance, LOST)
    Tables(consumer).move(9, OffsetRange(3, 9), "ann", "they are gone")
    assert seen(instance, consumer).paused == ""


def test_a_run_that_gives_no_sign_of_life_is_failed_and_forgotten(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    hangs, lives = run(instance, dg.DagsterRunStatus.STARTED), run(instance, dg.DagsterRunStatus.STARTED)
    clock = ManualClock(SystemClock().time())
    clock.advance(LIMIT + 1)
    elsewhere = Beat(clock.time(), "elsewhere", 1, 0.0)
    heartbeat.write(instance, lives, elsewhere)
    heartbeat.write(instance, hangs, Beat(clock.time() - LIMIT - 1, "elsewhere", 1, 0.0))
    [sentence] = ended(instance, consumer, clock)
    assert hangs in sentence and f"no sign of life for {LIMIT + 1:.0f} s" in sentence
    assert [m.run for m in seen(instance, consumer).members] == [lives]
    assert set(heartbeat.beats(instance, [hangs, lives])) == {lives}
    assert "What it committed is safe" in seen(instance, consumer).last_error
    assert ended(instance, consumer, clock) == []


def test_a_run_that_has_just_started_has_time_for_its_first_beat(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    run(instance, dg.DagsterRunStatus.STARTED)
    clock = ManualClock(SystemClock().time())
    assert ended(instance, consumer, clock) == []
    clock.advance(LIMIT + 2)
    assert len(ended(instance, consumer, clock)) == 1


def test_slots_of_a_dead_run_are_given_back(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    storage = instance.event_log_storage
    storage.set_concurrency_slots("ingest_orders", 1)
    dead = run(instance, dg.DagsterRunStatus.STARTED)
    assert storage.claim_concurrency_slot("ingest_orders", dead, "step").is_claimed
    clock = ManualClock(SystemClock().time() + LIMIT + 2)
    ended(instance, consumer, clock)
    assert storage.get_concurrency_info("ingest_orders").active_slot_count == 0


def test_what_a_killed_run_left_is_cleaned(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    over = run(instance, dg.DagsterRunStatus.FAILURE)
    heartbeat.write(instance, over, Beat(0.0, "elsewhere", 1, 0.0))
    ended(instance, consumer, ManualClock(SystemClock().time()))
    assert heartbeat.beats(instance, [over]), "its process may be about to go"
    ended(instance, consumer, ManualClock(SystemClock().time() + 60))
    assert heartbeat.beats(instance, [over]) == {}


def test_a_queued_run_is_explained_with_numbers(instance: dg.DagsterInstance, consumer: Consumer) -> None:
    run(instance, dg.DagsterRunStatus.STARTED)
    run(instance, dg.DagsterRunStatus.NOT_STARTED)
    members = seen(instance, consumer).members
    assert "1 of 10 run slots are taken" in blocked(instance, consumer, members)
    instance.event_log_storage.set_concurrency_slots("ingest_orders", 1)
    assert blocked(instance, consumer, members) == "the pool ingest_orders is full (1 of 1)"
