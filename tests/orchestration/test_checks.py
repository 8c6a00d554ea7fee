import dagster as dg
import pytest
from deltalake import DeltaTable

from consumers.clock import ManualClock, SystemClock
from consumers.config import Consumer
from consumers.types import OffsetRange
from orchestration import mirror
from orchestration.checks.definitions import CHECKS, check_job, findings, staged_checks
from orchestration.checks.ledger import ledger
from orchestration.checks.staged import Finding, no_duplicates, offsets_accounted_for, ranges_join, snapshot, snapshot_at
from orchestration.mirror_events import staged_key
from tests.orchestration.staged_tables import Tables


@pytest.fixture
def tables(consumer: Consumer) -> Tables:
    """Offsets 0 to 9: seven rows in two windows, two dead letters, one offset without a record."""
    tables = Tables(consumer)
    tables.acquire(0)
    tables.batch(0, 5, {"2024-01-01": [0, 1, 3]}, dead=[2, 4])
    tables.batch(5, 10, {"2024-01-01": [5], "2024-01-02": [6, 7, 9]})
    return tables


def found(consumer: Consumer) -> dict[str, Finding]:
    shot = snapshot(consumer)
    assert shot is not None
    return {"ranges": ranges_join(shot.book), "duplicates": no_duplicates(shot), "offsets": offsets_accounted_for(shot)}


def failing(consumer: Consumer) -> set[str]:
    return {name for name, finding in found(consumer).items() if not finding.passed}


def test_a_right_table_passes(consumer: Consumer, tables: Tables) -> None:
    assert failing(consumer) == set()
    numbers = found(consumer)["offsets"].numbers
    assert numbers == {"offsets": 10, "rows": 7, "dead_letters": 2, "skipped_offsets": 1, "lost_offsets": 0}


def test_a_row_written_twice_is_found_with_its_offset_and_windows(consumer: Consumer, tables: Tables) -> None:
    tables.plant("2024-01-03", 6)
    finding = found(consumer)["duplicates"]
    assert finding.problems == ("orders/0: 1 offsets are in two staged rows: 6 (windows 2024-01-02, 2024-01-03)",)


def test_an_offset_that_is_staged_and_a_dead_letter_is_found(consumer: Consumer, tables: Tables) -> None:
    tables.write_dead([6])
    assert "1 offsets are in staged rows and dead letters: 6" in found(consumer)["duplicates"].text


def test_a_dead_letter_written_twice_is_found(consumer: Consumer, tables: Tables) -> None:
    tables.write_dead([4])
    assert "1 offsets are in two dead letters: 4" in found(consumer)["duplicates"].text


def test_a_lost_row_is_found_with_its_commit_and_windows(consumer: Consumer, tables: Tables) -> None:
    snapshot_before = snapshot(consumer)
    assert snapshot_before is not None
    snapshot_before.table.delete("_offset = 6")
    text = found(consumer)["offsets"].text
    assert (
        "2 of its 5 offsets have neither row nor dead letter, it says 1: orders/0 6, 8 (windows 2024-01-01, 2024-01-02)" in text
    )


def test_a_row_that_no_commit_accounts_for_is_found(consumer: Consumer, tables: Tables) -> None:
    tables.plant("2024-01-03", 77)
    assert "1 staged rows are in no commit's ranges, such as orders/0" in found(consumer)["offsets"].text


def test_tentative_dead_letters_are_no_fault(consumer: Consumer, tables: Tables) -> None:
    tables.write_dead([10, 11])
    assert failing(consumer) == set()


def test_a_gap_between_ranges_is_found(consumer: Consumer, tables: Tables) -> None:
    tables.batch(12, 13, {"2024-01-04": [12]})
    assert found(consumer)["ranges"].problems == ("orders/0: offsets 10 to 11 are in no range (version 3, windows 2024-01-04)",)


def test_overlapping_ranges_are_found(consumer: Consumer, tables: Tables) -> None:
    tables.batch(9, 11, {"2024-01-04": [10]})
    assert "offsets 9 to 9 are in two ranges" in found(consumer)["ranges"].text


def test_a_takeover_that_jumps_without_a_recorded_loss_is_found(consumer: Consumer, tables: Tables) -> None:
    tables.acquire(20)
    assert "offsets 10 to 19 are in no range" in found(consumer)["ranges"].text


def test_a_recorded_loss_is_shown_as_a_warning(consumer: Consumer, tables: Tables) -> None:
    tables.acquire(20, lost=OffsetRange(10, 20))
    tables.batch(20, 21, {"2024-01-04": [20]})
    finding = found(consumer)["ranges"]
    assert finding.warning and "offsets 10 to 19 were lost" in finding.text and finding.numbers["lost_offsets"] == 10
    assert failing(consumer) == {"ranges"}


def test_a_recreated_topic_uses_its_offsets_again_without_duplicates(consumer: Consumer, tables: Tables) -> None:
    tables.topic_id = "another-id"
    tables.acquire(0, lost=OffsetRange(10, 10))
    tables.batch(0, 2, {"2024-01-05": [0, 1]})
    assert failing(consumer) == {"ranges"} and found(consumer)["ranges"].warning


def test_a_log_cut_short_uses_its_offsets_again_without_duplicates(consumer: Consumer, tables: Tables) -> None:
    tables.acquire(8, lost=OffsetRange(8, 10))
    tables.topic_id = "topic-id~2"  # what the rows of the second takeover's epoch are labelled with
    tables.batch(8, 10, {"2024-01-05": [8, 9]})
    assert failing(consumer) == {"ranges"} and found(consumer)["ranges"].warning


def test_commits_after_the_snapshot_do_not_disturb_it(consumer: Consumer, tables: Tables) -> None:
    loaded = DeltaTable(consumer.staged)
    tables.batch(10, 12, {"2024-01-02": [10]}, dead=[11])
    before = snapshot_at(loaded, consumer)
    assert offsets_accounted_for(before).problems == ()
    assert offsets_accounted_for(before).numbers["offsets"] == 10 and before.book.version == loaded.version()


def test_a_window_that_is_not_mirrored_is_found_and_mended_by_the_next_pass(consumer: Consumer, tables: Tables) -> None:
    clock = ManualClock(SystemClock().time() + 2 * mirror.GRACE_SECONDS)
    with dg.DagsterInstance.ephemeral() as instance:
        assert not findings(instance, consumer, clock)["mirrored"].passed
        mirror.catch_up(instance, consumer, instance.report_runless_asset_event, clock)
        assert findings(instance, consumer, clock)["mirrored"].passed
        instance.wipe_assets([staged_key("orders")])
        assert (
            "2024-01-01: the newest commit is version 2, and there is no event"
            in findings(instance, consumer, clock)["mirrored"].text
        )
        clock.advance(mirror.EVERY_SECONDS)
        mirror.catch_up(instance, consumer, instance.report_runless_asset_event, clock)
        assert findings(instance, consumer, clock)["mirrored"].passed


def test_commits_of_the_last_two_minutes_are_not_missed(consumer: Consumer, tables: Tables) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert findings(instance, consumer)["mirrored"].passed


def test_the_job_reports_all_four_checks_with_severity_and_numbers(consumer: Consumer, tables: Tables) -> None:
    tables.plant("2024-01-03", 6)
    definitions = dg.Definitions(
        assets=[dg.AssetSpec(["staged", "orders"])], asset_checks=[staged_checks(consumer)], jobs=[check_job(consumer)]
    )
    with dg.instance_for_test() as instance:
        result = definitions.resolve_job_def("check_orders").execute_in_process(instance=instance)
    outcomes = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert set(outcomes) == set(CHECKS)
    assert {name for name, e in outcomes.items() if not e.passed} == {"no_duplicates", "offsets_accounted_for"}
    assert outcomes["no_duplicates"].severity == dg.AssetCheckSeverity.ERROR
    assert outcomes["no_duplicates"].metadata["rows"].value == 8


def test_a_table_that_does_not_exist_yet_passes(consumer: Consumer) -> None:
    with dg.instance_for_test() as instance:
        assert all(finding.passed for finding in findings(instance, consumer).values())


def test_the_ledger_of_no_commits_is_empty() -> None:
    assert ledger([]).offsets == 0
