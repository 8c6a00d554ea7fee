"""What Dagster is told of complete windows: once each, within bounds, without making anything downstream stale."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.types import OffsetRange, Watermarks
from orchestration import completeness, mirror
from orchestration.completeness import Advanced, advance, kept, marks, valid_through
from orchestration.mirror_events import DATA_VERSION, staged_key
from tests.orchestration.staged_tables import TP, Tables, consumer_in

DAY = 86_400.0
JANUARY = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
CAUGHT_UP, BEHIND = Watermarks(0, 0), Watermarks(0, 1_000_000)


class Bench:
    """A consumer with its table, Dagster's storage, and a clock that stands in February 2024."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.consumer: Consumer = consumer_in(folder, window={"every": "day", "first": "2024-01-01", "grace_seconds": 0})
        self.tables = Tables(self.consumer)
        self.tables.acquire(0)
        self.offset = 0
        # Not before the events, whose time is the machine's.
        self.clock = ManualClock(datetime(2100, 1, 1, tzinfo=UTC).timestamp())

    def stage(self, day: str, until: str) -> None:
        """A row of one day, in a commit after which event time is at the beginning of another."""
        time = int(datetime.fromisoformat(until).replace(tzinfo=UTC).timestamp() * 1000)
        self.tables.batch(self.offset, self.offset + 1, {day: [self.offset]}, time=time)
        self.offset += 1

    def mirror(self) -> None:
        self.clock.advance(61)
        mirror.catch_up(self.instance, self.consumer, self.instance.report_runless_asset_event, self.clock)

    def look(self) -> Advanced:
        """A tick while there is more to read: its events are written, and the next one is more than a minute later."""
        found = advance(self.instance, self.consumer, {TP: BEHIND}, {TP: self.offset}, self.clock)
        for event in found.events:
            self.instance.report_runless_asset_event(event)
        self.clock.advance(61)
        return found

    def newest(self, window: str) -> dg.AssetMaterialization:
        found = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=staged_key("orders"), asset_partitions=[window]), limit=1
        ).records[0]
        assert found.asset_materialization is not None
        return found.asset_materialization


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Bench(tmp_path, instance)


def told(found: Advanced) -> list[str | None]:
    return [event.partition for event in found.events]


def test_a_quiet_window_is_told_of_once_as_complete_and_empty(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-04", "2024-01-04")
    bench.mirror()
    found = bench.look()
    assert told(found) == ["2024-01-01", "2024-01-02", "2024-01-03"]
    quiet = bench.newest("2024-01-02")
    assert (quiet.metadata["complete"].value, quiet.metadata["rows"].value) == (True, 0)
    assert (quiet.tags or {})[DATA_VERSION] == completeness.EMPTY
    assert told(bench.look()) == [] and told(bench.look()) == []


def test_a_clock_that_ran_ahead_keeps_no_later_window_from_being_told_of(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-02")
    bench.mirror()
    right = bench.clock.time()
    bench.clock.advance(100 * DAY)
    assert told(bench.look()) == ["2024-01-01"]
    bench.clock = ManualClock(right)
    bench.stage("2024-01-04", "2024-01-04")
    bench.mirror()
    assert told(bench.look()) == ["2024-01-02", "2024-01-03"]


def test_a_window_with_rows_becomes_complete_with_the_data_version_that_it_has(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.mirror()
    before = bench.newest("2024-01-01")
    assert before.metadata["complete"].value is False
    bench.stage("2024-01-02", "2024-01-02")
    bench.mirror()
    assert told(bench.look()) == ["2024-01-01"]
    after = bench.newest("2024-01-01")
    assert after.metadata["complete"].value is True and after.tags == before.tags
    assert after.metadata["delta_version"] == before.metadata["delta_version"]
    assert mirror.compare(bench.instance, bench.consumer, bench.clock) == [], "the mirror takes it for its own"


def test_a_window_that_the_mirror_has_not_told_of_yet_is_left_to_it(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-02", "2024-01-02")
    assert told(bench.look()) == []
    bench.mirror()
    assert bench.newest("2024-01-01").metadata["complete"].value is True
    assert told(bench.look()) == []


def test_a_window_has_no_two_events_within_a_minute(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-03", "2024-01-03")
    mirror.catch_up(bench.instance, bench.consumer, bench.instance.report_runless_asset_event, bench.clock)
    written = bench.instance.fetch_materializations(staged_key("orders"), limit=9).records[-1].timestamp
    bench.clock = ManualClock(written + 30)
    assert told(bench.look()) == ["2024-01-02"], "the quiet one has no event yet"
    assert told(bench.look()) == ["2024-01-01"], "a minute later"


def test_events_that_were_lost_are_returned_again_a_minute_later(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-04", "2024-01-04")
    bench.mirror()
    lost = advance(bench.instance, bench.consumer, {TP: BEHIND}, {TP: 2}, bench.clock)
    bench.clock.advance(59)
    assert told(advance(bench.instance, bench.consumer, {TP: BEHIND}, {TP: 2}, bench.clock)) == []
    bench.clock.advance(1)
    assert told(bench.look()) == told(lost) == ["2024-01-01", "2024-01-02", "2024-01-03"]


def test_a_tick_tells_of_a_bounded_number_of_windows_oldest_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completeness, "MOST_EVENTS", 2)
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-06", "2024-01-06")
    bench.mirror()
    found = [told(bench.look()) for _ in range(4)]
    assert found == [["2024-01-01", "2024-01-02"], ["2024-01-03", "2024-01-04"], ["2024-01-05"], []]


def test_late_data_marks_a_complete_window_as_revised_and_says_how_late(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-03", "2024-01-03")
    bench.mirror()
    bench.look()
    bench.stage("2024-01-01", "2024-01-03")
    bench.mirror()
    late = bench.newest("2024-01-01").metadata
    assert (late["complete"].value, late["revised"].value, late["late_by_seconds"].value) == (True, True, DAY)
    assert "revised" not in bench.newest("2024-01-03").metadata


def test_the_commit_that_completes_a_window_does_not_revise_it(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.look()
    bench.stage("2024-01-01", "2024-01-02")
    bench.look()
    bench.mirror()
    assert bench.newest("2024-01-01").metadata["complete"].value is True
    assert "revised" not in bench.newest("2024-01-01").metadata


def test_a_window_is_marked_open_while_nothing_is_known(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    [commit] = mirror.commits(bench.consumer.staged)[-1:]
    assert marks(bench.instance, bench.consumer)("2024-01-01", commit) == {"complete": dg.MetadataValue.bool(False)}
    assert valid_through(bench.instance, "orders") is None


def test_a_partition_that_is_read_to_its_end_completes_windows_by_the_wall_clock(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.clock = ManualClock(JANUARY + 2 * DAY)
    at_end = {TP: Watermarks(0, 1)}
    assert "orders/0 has no row" not in advance(bench.instance, bench.consumer, at_end, {TP: 1}, bench.clock).sentence
    bench.clock.advance(60)
    found = advance(bench.instance, bench.consumer, at_end, {TP: 1}, bench.clock)
    assert valid_through(bench.instance, "orders") == JANUARY + 2 * DAY
    assert found.sentence == "valid through 2024-01-03 00:00:00Z"


def test_the_mirror_writes_nothing_within_a_minute_of_windows_that_became_complete(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-03", "2024-01-03")
    bench.mirror()
    assert bench.look().events
    bench.clock.advance(-61)
    mirror.wrote(bench.instance, bench.consumer, bench.clock)
    bench.stage("2024-01-01", "2024-01-03")
    bench.clock.advance(59)
    emit = bench.instance.report_runless_asset_event
    assert mirror.catch_up(bench.instance, bench.consumer, emit, bench.clock).events == 0
    bench.clock.advance(1)
    assert mirror.catch_up(bench.instance, bench.consumer, emit, bench.clock).events == 1


def test_windows_are_told_of_again_after_a_position_was_moved_back(bench: Bench) -> None:
    bench.stage("2024-01-01", "2024-01-01")
    bench.stage("2024-01-03", "2024-01-03")
    bench.mirror()
    bench.look()
    bench.look()
    bench.tables.move(1, OffsetRange(1, 2), "me", "again")
    assert "not known yet: orders/0 has no row and is not idle" in bench.look().sentence
    assert kept(bench.instance, "orders").told == ""
    bench.offset = 1
    bench.stage("2024-01-02", "2024-01-03")
    bench.mirror()
    assert told(bench.look()) == ["2024-01-02"], "the first day has an event that says complete"


def test_another_table_in_the_same_place_starts_anew(bench: Bench, tmp_path: Path) -> None:
    bench.stage("2024-01-01", "2024-01-03")
    bench.look()
    other = Bench(tmp_path / "other", bench.instance)
    other.stage("2024-01-01", "2024-01-01")
    bench.consumer = other.consumer
    bench.look()
    assert valid_through(bench.instance, "orders") == JANUARY


def test_before_the_first_commit_nothing_is_said_to_be_complete(bench: Bench, tmp_path: Path) -> None:
    absent = consumer_in(tmp_path / "absent")
    assert advance(bench.instance, absent, {TP: CAUGHT_UP}, {}, bench.clock) == Advanced((), "nothing is staged yet")
