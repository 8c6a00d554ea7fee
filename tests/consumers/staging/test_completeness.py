"""Which windows are complete: watermarks of partitions, idle ones, records from the future, late data, positions that go back."""

from datetime import UTC, datetime

import pytest

from consumers.config import Window
from consumers.staging.completeness import Progress, complete_windows, end_of, fold, look, watermarks
from consumers.staging.log import StagedCommit, WindowChange
from consumers.types import OffsetRange, TopicPartition, Watermarks

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
HOURLY = Window(every="hour", first="2024-01-01", grace_seconds=60, idle_seconds=60)


def ms(clock: str) -> int:
    """Of the first of January 2024, such as 05:30."""
    return int(datetime.fromisoformat(f"2024-01-01T{clock}").replace(tzinfo=UTC).timestamp() * 1000)


def batch(version: int, times: dict[TopicPartition, str], *windows: str) -> StagedCommit:
    return StagedCommit(
        commit_id=str(version),
        kind="batch",
        consumer="c",
        member="m",
        version=version,
        times={tp: ms(at) for tp, at in times.items()},
        windows={f"2024-01-01-{window}": WindowChange(1, 1, 1) for window in windows},
    )


def behind(progress: Progress, now: str, window: Window = HOURLY) -> Progress:
    """As seen while both partitions have records to read."""
    marks = {tp: Watermarks(0, 10) for tp in (ZERO, ONE)}
    return look(progress, marks, {ZERO: 5, ONE: 5}, window, ms(now))


def caught_up(progress: Progress, now: str, *partitions: TopicPartition) -> Progress:
    """As seen while these partitions are read to their end, and partition 0 is not unless it is named."""
    marks = {tp: Watermarks(0, 10) for tp in (ZERO, ONE)}
    return look(progress, marks, {tp: 10 if tp in partitions else 5 for tp in marks}, HOURLY, ms(now))


def test_the_table_is_valid_through_the_slowest_partition_less_the_grace_period() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "05:30", ONE: "03:10"}, "03", "05")], "hour"), "09:00")
    assert progress.valid_through == ms("03:09")
    assert progress.complete("2024-01-01-02", "hour") and not progress.complete("2024-01-01-03", "hour")


@pytest.mark.parametrize(("reached", "complete"), [("04:00:59", False), ("04:01:00", True)])
def test_a_window_is_complete_from_its_end_and_the_grace_period_on(reached: str, complete: bool) -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: reached, ONE: reached}, "03")], "hour"), "09:00")
    assert progress.complete("2024-01-01-03", "hour") is complete


def test_a_partition_without_a_row_holds_every_window_open_while_it_has_something_to_read() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "05:30"}, "05")], "hour"), "09:00")
    assert progress.valid_through is None
    assert watermarks(progress, [ZERO, ONE], HOURLY, ms("09:00")) == {ZERO: ms("05:30"), ONE: None}


def test_a_partition_that_has_nothing_to_read_for_long_enough_has_reached_the_wall_clock_less_that() -> None:
    progress = fold(Progress(), [batch(1, {ZERO: "05:30"}, "05")], "hour")
    progress = caught_up(progress, "09:00:00", ONE)
    assert caught_up(progress, "09:00:59", ONE).valid_through is None
    progress = caught_up(progress, "09:01:00", ONE)
    assert watermarks(progress, [ONE], HOURLY, ms("09:01:00")) == {ONE: ms("09:00:00")}
    assert progress.valid_through == ms("05:29")


def test_a_partition_that_gets_records_again_is_idle_no_longer() -> None:
    progress = caught_up(Progress(), "09:00", ZERO, ONE)
    marks = {ZERO: Watermarks(0, 11), ONE: Watermarks(0, 10)}
    progress = look(progress, marks, {ZERO: 11, ONE: 10}, HOURLY, ms("09:02"))
    assert watermarks(progress, marks, HOURLY, ms("09:02")) == {ZERO: None, ONE: ms("09:01")}


def test_a_record_from_the_future_completes_nothing_beyond_the_wall_clock() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "23:00", ONE: "23:00"}, "23")], "hour"), "09:00")
    assert progress.valid_through == ms("08:59")


def test_what_a_clock_that_ran_ahead_saw_complete_is_open_again_once_the_clock_is_right() -> None:
    progress = fold(Progress(), [batch(1, {ZERO: "05:30", ONE: "05:30"}, "05")], "hour")
    ahead = caught_up(caught_up(progress, "20:00", ZERO, ONE), "20:02", ZERO, ONE)
    assert ahead.complete("2024-01-01-10", "hour")
    right = caught_up(ahead, "06:10", ZERO, ONE)
    assert not right.complete("2024-01-01-06", "hour")
    assert caught_up(right, "07:05", ZERO, ONE).complete("2024-01-01-06", "hour")


def test_what_is_complete_stays_so_when_a_partition_is_added() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "05:30", ONE: "05:30"}, "05")], "hour"), "09:00")
    marks = {tp: Watermarks(0, 10) for tp in (ZERO, ONE, TopicPartition("t", 2))}
    assert look(progress, marks, dict.fromkeys(marks, 5), HOURLY, ms("09:00")).valid_through == ms("05:29")


def test_quiet_windows_between_the_first_with_a_row_and_the_last_complete_one_are_complete() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "06:30", ONE: "06:30"}, "02", "06")], "hour"), "09:00")
    assert list(complete_windows(progress, HOURLY)) == [f"2024-01-01-0{hour}" for hour in (2, 3, 4, 5)]
    assert list(complete_windows(progress, HOURLY, after="2024-01-01-04")) == ["2024-01-01-05"]


def test_no_window_is_told_of_before_the_first_partition_or_after_the_last() -> None:
    days = Window(every="day", first="2024-01-02", last="2024-01-03")
    found = StagedCommit(
        "1", "batch", "c", "m", version=1, times={ZERO: ms("00:00")}, windows={"2023-12-30": WindowChange(1, 1, 1)}
    )
    later = int(datetime(2024, 2, 1, tzinfo=UTC).timestamp() * 1000)
    progress = look(fold(Progress(), [found], "day"), {ZERO: Watermarks(0, 1)}, {ZERO: 1}, days, later)
    progress = look(progress, {ZERO: Watermarks(0, 1)}, {ZERO: 1}, days, later + 60_000)
    assert list(complete_windows(progress, days)) == ["2024-01-02", "2024-01-03"]


def test_a_commit_is_late_by_what_event_time_had_passed_the_windows_end_before_it() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "05:30", ONE: "05:30"}, "05")], "hour"), "09:00")
    progress = behind(fold(progress, [batch(2, {ZERO: "07:00", ONE: "07:00"}, "03")], "hour"), "09:00")
    assert progress.late_by("2024-01-01-03", 2, "hour") == 89 * 60
    assert progress.late_by("2024-01-01-05", 2, "hour") is None, "it was open when commit 2 came"
    assert progress.late_by("2024-01-01-05", 1, "hour") is None, "it is what opened it"


def test_a_position_that_was_moved_back_makes_windows_incomplete_until_they_are_read_again() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "05:30", ONE: "05:30"}, "05")], "hour"), "09:00")
    back = StagedCommit("2", "move", "c", "m", version=2, starts={ONE: 2}, moved={ONE: OffsetRange(2, 5)})
    progress = behind(fold(progress, [back], "hour"), "09:00")
    assert progress.valid_through is None
    progress = behind(fold(progress, [batch(3, {ONE: "04:30"}, "04")], "hour"), "09:00")
    assert progress.valid_through == ms("04:29")


def test_a_position_that_was_moved_forward_leaves_windows_complete() -> None:
    progress = behind(fold(Progress(), [batch(1, {ZERO: "05:30", ONE: "05:30"}, "05")], "hour"), "09:00")
    on = StagedCommit("2", "move", "c", "m", version=2, starts={ONE: 8}, moved={ONE: OffsetRange(5, 8)})
    assert behind(fold(progress, [on], "hour"), "09:00").valid_through == ms("05:29")


def test_what_is_kept_comes_back_and_what_is_not_ours_is_forgotten() -> None:
    progress = caught_up(fold(Progress(), [batch(1, {ZERO: "05:30", ONE: "05:30"}, "05")], "hour"), "09:00", ONE)
    assert Progress.from_json(progress.to_json()) == progress
    for foreign in ("", "[]", "nonsense", '{"version": 1}'):
        assert Progress.from_json(foreign) == Progress()


@pytest.mark.parametrize("key", ["", "2024", "2024-01-01", "x", "0000-01-01-00"])
def test_a_text_that_is_no_hour_never_ends(key: str) -> None:
    assert end_of(key, "hour") is None


def test_the_last_hour_of_the_calendar_ends() -> None:
    assert end_of("9999-12-31-23", "hour") == 253_402_300_800_000
