from dataclasses import replace

import dagster as dg

from consumers.staging.log import StagedCommit, Timings, WindowChange
from consumers.types import OffsetRange, TopicPartition
from orchestration.mirror_events import MOST_ROWS, Held, window_event

TP = TopicPartition("orders", 0)
RUN = "7d1e8a52-3f0e-4c53-a4c5-8e3f4e0a6a11"
BATCH = StagedCommit(
    commit_id="0123456789",
    kind="batch",
    consumer="orders",
    member="host-1",
    ranges={TP: OffsetRange(0, 10)},
    rows=10,
    windows={"2024-01-01": WindowChange(10, 1000, 1)},
    high={TP: 15},
    timings=Timings(age=1.0, decode=0.25, write=0.5, commit=0.25),
    times={TP: 90_000},
    schema_id="s1",
    version=3,
    committed_at_ms=100_000,
)


def metadata(*commits: StagedCommit, held: Held | None = None) -> dict[str, object]:
    event = window_event("orders", commits, "2024-01-01", held)
    return {name: value.value for name, value in event.metadata.items()}


def test_an_event_has_the_numbers_that_the_ui_plots() -> None:
    event = window_event("orders", [BATCH], "2024-01-01", Held(rows=40, files=4, small=3))
    plotted = (dg.IntMetadataValue, dg.FloatMetadataValue)
    numbers = {name: value.value for name, value in event.metadata.items() if isinstance(value, plotted)}
    assert numbers == {
        "rows": 10,
        "bytes": 1000,
        "files": 1,
        "dagster/partition_row_count": 40,
        "active_files": 4,
        "small_file_share": 0.75,
        "commits": 1,
        "lag": 5,
        "event_age_seconds": 10.0,
        "rows_per_second": 5.0,
        "flush_milliseconds": 750.0,
        "commit_milliseconds": 250.0,
        "dead_letters": 0,
        "skipped_offsets": 0,
        "delta_version": 3,
    }


def test_where_record_times_are_unknown_the_event_age_is_that_of_the_batch() -> None:
    assert metadata(replace(BATCH, times={}))["event_age_seconds"] == 2.0


def test_lag_and_the_like_are_the_newest_commits_and_counts_are_sums() -> None:
    newest = replace(BATCH, high={TP: 10}, times={TP: 99_000}, version=4)
    found = metadata(BATCH, newest)
    assert (found["rows"], found["commits"], found["rows_per_second"]) == (20, 2, 5.0)
    assert (found["lag"], found["event_age_seconds"], found["delta_version"]) == (0, 1.0, 4)


def test_a_rewrite_replaces_what_was_added_before_it() -> None:
    rewrite = replace(BATCH, kind="rewrite", windows={"2024-01-01": WindowChange(7, 700, 1)})
    assert metadata(BATCH, rewrite)["rows"] == 7
    assert metadata(BATCH, rewrite, BATCH)["rows"] == 17


def test_a_member_that_is_a_run_is_a_link_to_it() -> None:
    of_run = window_event("orders", [replace(BATCH, member=RUN)], "2024-01-01")
    assert of_run.metadata["member"] == dg.MetadataValue.dagster_run(RUN)
    assert window_event("orders", [BATCH], "2024-01-01").metadata["member"] == dg.MetadataValue.text("host-1")


def test_ranges_of_many_partitions_are_cut_with_a_row_that_says_so() -> None:
    many = {TopicPartition("orders", n): OffsetRange(0, 1) for n in range(250)}
    ranges = metadata(replace(BATCH, ranges=many))["ranges"]
    assert isinstance(ranges, dg.TableMetadataValue)
    assert len(ranges.records) == MOST_ROWS
    assert ranges.records[-1].data["partition"] == f"and {250 - MOST_ROWS + 1} more"
