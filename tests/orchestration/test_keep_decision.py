from dataclasses import replace

import pytest

from consumers.config import OnLag
from consumers.types import TopicPartition
from orchestration.sensors import modes
from orchestration.sensors.decision import Facts, Member, Work, decide, handover, pause
from orchestration.sensors.modes import ALWAYS, Plan

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
HOURLY = "0 * * * *"
HOUR = 3600.0
NINE = 1_699_995_600.0
"""2023-11-14 21:00 UTC."""


def member(run: str, **changes: object) -> Member:
    return replace(Member(run, "working", 600.0, leaves_in=1000.0), **changes)  # type: ignore[arg-type]


ONE, TWO, THREE = member("r1", seconds=900.0), member("r2"), member("r3", seconds=30.0)
RUNNING = Facts(wanted=2, members=(ONE, TWO), work=ALWAYS, lag=1234, version=56, newest_run="r9")
NOBODY: dict[str, object] = {"members": ()}


@pytest.mark.parametrize(
    ("changes", "started", "words"),
    [
        ({}, 0, "2 of 2 members alive, lag 1,234 records, committed version 56"),
        ({"members": (ONE,)}, 1, "starting 1"),
        (NOBODY, 2, "starting 2"),
        ({**NOBODY, "lag": 0}, 2, "starting 2"),
        (
            {**NOBODY, "work": Work(False, "nothing to read")},
            0,
            "0 of 2 members alive, lag 1,234 records, committed version 56: nothing",
        ),
        (
            {**NOBODY, "failures": 1, "seconds_since_failure": 14.0, "last_error": "disk full"},
            0,
            "try in 1 s. Last error: disk full",
        ),
        ({**NOBODY, "failures": 1, "seconds_since_failure": 16.0}, 2, "starting 2"),
        ({**NOBODY, "failures": 3, "seconds_since_failure": 16.0}, 0, "3 runs failed in a row"),
        ({**NOBODY, "failures": 90, "seconds_since_failure": 301.0}, 2, "starting 2"),
        (
            {**NOBODY, "paused": "90 of 100 records are invalid"},
            0,
            "switch this sensor off and on again to go on. The error: 90 of 100",
        ),
        (
            {"members": (ONE, member("r2", state="queued", seconds=34.0)), "blocked": "the pool is full (2 of 2)"},
            0,
            "1 queued for 34 s: the",
        ),
        ({"members": (ONE, member("r2", state="starting", seconds=44.0))}, 0, "1 starting for 44 s"),
    ],
)
def test_the_sensor_starts_what_is_missing_and_says_why_not(changes: dict[str, object], started: int, words: str) -> None:
    decision = decide("orders", replace(RUNNING, **changes))  # type: ignore[arg-type]
    assert len(decision.run_keys) == started
    assert words in decision.reason


def test_a_repeated_tick_asks_for_the_same_runs_and_a_later_one_for_others() -> None:
    dead = replace(RUNNING, members=())
    assert decide("orders", dead) == decide("orders", dead)
    assert not set(decide("orders", dead).run_keys) & set(decide("orders", replace(dead, newest_run="r10")).run_keys)


def test_a_successor_is_started_before_its_member_leaves_and_only_one() -> None:
    leaving = member("r1", leaves_in=0.0)
    first = decide("orders", replace(RUNNING, members=(leaving, TWO)))
    assert len(first.run_keys) == 1 and "1 handing over" in first.reason
    joined = decide("orders", replace(RUNNING, members=(leaving, TWO, member("r3", state="queued", leaves_in=None))))
    assert joined.run_keys == () and "3 of 2 members alive" in joined.reason and joined.leave == ()


def test_members_that_hand_over_do_so_without_a_successor_when_there_is_nothing_to_do() -> None:
    leaving = replace(RUNNING, wanted=1, members=(member("r1", leaves_in=-5.0),), work=Work(False, "nothing to read"))
    assert decide("orders", leaving).run_keys == ()


def test_fewer_members_wanted_means_that_some_are_told_to_leave_those_that_have_not_begun_first() -> None:
    queued = member("r4", state="queued", leaves_in=None)
    fewer = decide("orders", replace(RUNNING, members=(ONE, TWO, THREE, queued)))
    assert fewer.leave == ("r4", "r1") and "2 told to leave, 2 are wanted" in fewer.reason and fewer.why == "2 are wanted"
    told = (replace(ONE, told=True), TWO, THREE, replace(queued, told=True))
    assert decide("orders", replace(RUNNING, members=told)).leave == ()


OLD, OLDER = member("r1", outdated=True, leaves_in=-5.0), member("r0", outdated=True, leaves_in=-5.0, seconds=900.0)
FRESH, JOINED = member("r3", seconds=29.0), member("r4", seconds=30.0)


def test_a_member_that_works_for_longer_than_is_allowed_by_now_leaves_once_its_successor_has_joined() -> None:
    alone = decide("orders", replace(RUNNING, wanted=1, members=(OLD,)))
    assert len(alone.run_keys) == 1 and alone.leave == ()
    for coming in (member("r3", state="queued", leaves_in=None), member("r3", state="starting", leaves_in=None), FRESH):
        assert decide("orders", replace(RUNNING, wanted=1, members=(OLD, coming))).leave == ()
    joined = decide("orders", replace(RUNNING, wanted=1, members=(OLD, JOINED)))
    assert joined.leave == ("r1",) and "1 told to leave, max_run_seconds was lowered" in joined.reason
    assert joined.why.startswith("max_run_seconds was lowered")
    assert decide("orders", replace(RUNNING, wanted=1, members=(replace(OLD, told=True), JOINED))).leave == ()


def test_of_several_such_members_no_more_leave_than_others_have_come_for() -> None:
    assert decide("orders", replace(RUNNING, members=(OLD, OLDER, JOINED, FRESH))).leave == ("r0",)
    assert decide("orders", replace(RUNNING, members=(OLD, replace(OLDER, told=True), JOINED, FRESH))).leave == ()
    assert decide("orders", replace(RUNNING, members=(OLD, replace(OLDER, told=True), JOINED, JOINED))).leave == ("r1",)


def test_a_member_that_hands_over_at_its_own_time_is_not_told_to_leave() -> None:
    assert decide("orders", replace(RUNNING, wanted=1, members=(member("r1", leaves_in=-5.0), JOINED))).leave == ()
    by_hand = replace(OLD, ours=False)
    assert decide("orders", replace(RUNNING, wanted=1, members=(by_hand, JOINED))).leave == ()


def test_a_run_that_an_operator_started_is_a_member_but_never_told_to_leave() -> None:
    by_hand = member("r3", ours=False)
    assert decide("orders", replace(RUNNING, members=(ONE, TWO, by_hand))).leave == ()
    assert decide("orders", replace(RUNNING, members=(ONE, by_hand))).run_keys == ()


def test_pauses_double_up_to_five_minutes() -> None:
    assert [pause(n) for n in range(7)] == [0, 15, 30, 60, 120, 240, 300]


def test_a_member_of_a_short_life_hands_over_in_its_second_half() -> None:
    assert (handover(1800), handover(10)) == (60, 5)


def test_where_starts_are_slow_a_successor_is_asked_for_earlier() -> None:
    assert (handover(1800, slowest_start=20), handover(1800, slowest_start=90), handover(100, slowest_start=90)) == (60, 180, 50)


def test_a_schedule_waits_for_the_next_time_after_it_was_switched_on() -> None:
    plan, work = modes.scheduled(HOURLY, Plan(), {TP: 100}, {TP: 0}, NINE + 60)
    assert not work.due and plan == Plan(NINE)
    assert work.why == f"waiting for 2023-11-14 22:00 UTC, the next time of '{HOURLY}', in 3540 s"


def test_when_its_time_has_come_a_schedule_works_until_what_was_there_then_is_staged() -> None:
    plan, work = modes.scheduled(HOURLY, Plan(NINE), {TP: 100, OTHER: 5}, {TP: 0, OTHER: 5}, NINE + HOUR)
    assert work.due
    plan, work = modes.scheduled(HOURLY, plan, {TP: 900, OTHER: 9}, {TP: 99, OTHER: 5}, NINE + HOUR + 600)
    assert work.due
    plan, work = modes.scheduled(HOURLY, plan, {TP: 900, OTHER: 9}, {TP: 100, OTHER: 5}, NINE + HOUR + 900)
    assert not work.due


def test_times_that_were_missed_are_caught_up_once() -> None:
    plan, work = modes.scheduled(HOURLY, Plan(NINE), {TP: 100}, {TP: 0}, NINE + 5 * HOUR)
    assert work.due and plan.seen == NINE + 5 * HOUR
    assert not modes.scheduled(HOURLY, plan, {TP: 200}, {TP: 100}, NINE + 5 * HOUR + 1)[1].due


def test_a_schedule_with_nothing_to_read_starts_nobody() -> None:
    assert not modes.scheduled(HOURLY, Plan(NINE), {TP: 100}, {TP: 100}, NINE + HOUR)[1].due


def test_a_position_past_the_end_is_work_because_a_member_has_to_find_out() -> None:
    assert modes.scheduled(HOURLY, Plan(NINE), {TP: 10}, {TP: 100}, NINE + 1)[1].due


@pytest.mark.parametrize(
    ("lag", "overdue", "due", "why"),
    [
        (0, False, False, "nothing to read"),
        (0, True, False, "nothing to read"),
        (999, False, False, "starting from 1,000 records or 60 s of waiting on"),
        (999, True, True, ""),
        (1000, False, True, ""),
    ],
)
def test_on_lag_starts_from_many_records_or_old_ones_on(lag: int, overdue: bool, due: bool, why: str) -> None:
    assert modes.on_lag(OnLag(records=1000, seconds=60), lag, overdue) == Work(due, why)


def test_a_record_is_overdue_when_the_first_young_one_is_behind_the_position() -> None:
    assert modes.overdue({TP: 5, OTHER: 0}, {TP: 6, OTHER: 0})
    assert not modes.overdue({TP: 5, OTHER: 0}, {TP: 5, OTHER: 0})
    assert not modes.overdue({TP: 5}, {TP: 3})
