"""The main job through Dagster itself: daemon, webserver, runs in processes of their own, real Kafka, real Spark.

The tests share one platform and build on each other in the order of this file.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from dagster import AssetMaterialization, DagsterRunStatus, RunsFilter
from deltalake import DeltaTable

from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.clock import SystemClock
from consumers.staging.log import commits
from orchestration import mirror
from orchestration.completeness import EMPTY
from orchestration.compute.output import Output, read_output
from orchestration.demo import verify
from orchestration.demo.watch import jobs
from orchestration.mirror_events import data_version
from orchestration.samples import complete
from orchestration.samples.produce import Produced
from orchestration.samples.records import malformed_rows, records, sample
from orchestration.samples.sources import SEED
from tests.integration.platform import RECORDS, Platform, newest

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

STAGED_CHECKS = {"ranges_join", "no_duplicates", "offsets_accounted_for", "mirrored"}
LATE = 4_000
"""The flight that comes a second time, late: one of the 5th of January."""
MORE = 4_000
"""Flights of the following days, up to the 28th of January: the two days after them have none."""


def test_sensors_stage_what_is_waiting_and_spark_computes_the_touched_windows(platform: Platform) -> None:
    for topic in RECORDS:
        platform.until(lambda topic=topic: platform.staged_all(topic), f"{topic} is staged", 180)  # type: ignore[misc]
    for output in ("airport_delays", "account_balances"):
        platform.until(lambda output=output: platform.computed(output), f"{output} is computed", 240)  # type: ignore[misc]
    platform.until(lambda: platform.mirrored("flights"), "the flights are mirrored", 120)
    assert set(with_rows(platform.materializations("staged", "flights"))) == set(days_of_flights(0, RECORDS["flights"]))
    assert set(newest(platform.materializations("airport_delays"))) == set(days_of_flights(0, RECORDS["flights"]))
    assert_each_record_once(platform, "flights", RECORDS["flights"])
    assert_each_record_once(platform, "weather", RECORDS["weather"])
    assert_each_record_once(platform, "transactions", RECORDS["transactions"])


def test_all_checks_are_green_where_the_ui_shows_them(platform: Platform) -> None:
    for topic in RECORDS:
        key = ["staged", topic]
        platform.until(lambda key=key: set(green_checks(platform, key)) >= STAGED_CHECKS, f"checks of {key} are green", 360)  # type: ignore[misc]
    assert set(green_checks(platform, ["account_balances"])) == {"balances_match", "every_transaction_once", "known_accounts"}


def test_a_late_record_recomputes_its_window_alone(platform: Platform) -> None:
    staged, computed = platform.materializations("staged", "flights"), platform.materializations("airport_delays")
    before = delays(platform)
    frame = sample("flights").frame(SEED)[LATE : LATE + 1]
    (record,) = records(sample("flights"), frame, malformed_rows(1, 0.0), SEED)
    with KafkaProducer(KafkaOptions(platform.bootstrap_servers)) as producer:
        producer.send("flights", record.value, record.key, timestamp_ms=record.timestamp)
    (window,) = days_of_flights(LATE, LATE + 1)

    platform.until(lambda: newest_of(platform, "airport_delays", computed) != {}, f"{window} is recomputed", 180)
    platform.until(lambda: platform.computed("airport_delays"), "no run goes on", 60)
    platform.until(lambda: platform.mirrored("flights"), "the late record is mirrored", 120)

    assert list(newest_of(platform, "airport_delays", computed)) == [window]
    known, now = with_rows(staged), with_rows(platform.materializations("staged", "flights"))
    assert {each for each, version in now.items() if known.get(each) != version} == {window}
    after = delays(platform)
    assert changed(before, after) == {window}
    flights = DeltaTable(platform.settings.tables / "airport_delays").to_pandas(columns=["_window", "flights"])
    assert flights[flights["_window"] == window]["flights"].sum() == days_of_flights(0, RECORDS["flights"]).count(window) + 1


def test_a_backfill_of_thirty_days_computes_what_is_stale_and_a_second_one_changes_nothing(platform: Platform) -> None:
    days = [f"2013-01-{day:02d}" for day in range(1, 31)]
    there = complete.present("flights", platform.bootstrap_servers)
    new = set(days_of_flights(there, there + MORE))
    empty = set(days) - set(days_of_flights(0, there + MORE))
    with platform.without_sensor("airport_delays_sensor"):
        before = delays(platform)
        complete.complete("flights", platform.bootstrap_servers, limit=there + MORE)
        platform.until(lambda: platform.staged_all("flights"), "more flights are staged", 120)
        seen = platform.materializations("airport_delays")
        one = backfill(platform, days)
        first, events = delays(platform), events_after(platform, seen)
        assert changed(before, first) == new
        assert {event.partition for event in events} == set(days)
        assert {event.partition for event in events if not unchanged(event)} == new | empty

        seen = platform.materializations("airport_delays")
        two = backfill(platform, days)
        events = events_after(platform, seen)
        assert {event.partition for event in events if unchanged(event)} == set(days)
        assert delays(platform).version == first.version
        for each in (one, two):
            platform.until(lambda each=each: completed(platform, each), "Dagster calls the backfill completed", 120)  # type: ignore[misc]


def test_an_ingestion_run_terminated_in_the_middle_stops_at_once_and_the_next_one_goes_on(platform: Platform) -> None:
    with platform.without_sensor("account_balances_sensor"), replay(platform, "transactions"):
        run = working_run(platform, "transactions")
        process = psutil.Process(platform.pid(run))
        platform.terminate(run)
        platform.until(lambda: platform.status(run) == DagsterRunStatus.CANCELED, "the run is canceled", 15)
        platform.until(lambda: not process.is_running(), "its process is gone", 30)
        assert working_run(platform, "transactions") != run
    assert_goes_on_exactly_once(platform, "transactions")


def test_an_ingestion_run_that_is_killed_is_found_and_replaced(platform: Platform) -> None:
    with platform.without_sensor("account_balances_sensor"), replay(platform, "transactions"):
        run = working_run(platform, "transactions")
        psutil.Process(platform.pid(run)).kill()
        platform.until(lambda: platform.status(run) == DagsterRunStatus.FAILURE, "the run is known to have failed", 90)
        assert working_run(platform, "transactions") != run
    assert_goes_on_exactly_once(platform, "transactions")


def test_commits_that_dagster_never_heard_of_are_mirrored_by_the_sensor(platform: Platform) -> None:
    consumer = platform.consumer("weather")
    with platform.without_sensor("keep_weather"):
        (run,) = platform.runs("ingest_weather", [DagsterRunStatus.STARTED])
        platform.terminate(run)
        platform.until(lambda: platform.status(run) == DagsterRunStatus.CANCELED, "the run is canceled", 15)
        complete.complete("weather", platform.bootstrap_servers, limit=RECORDS["weather"] + 200)
        platform.weir("ingest", "weather", "--until-caught-up")
        lost = mirror.compare(platform.instance, consumer, SystemClock())
        assert lost != []
    platform.until(lambda: platform.mirrored("weather"), "the sensor mirrored them", 150)
    versions = newest(platform.materializations("staged", "weather"))
    assert all(versions[each.part] == data_version(each.commits[-1]) for each in lost)
    assert_each_record_once(platform, "weather", RECORDS["weather"] + 200)


def assert_each_record_once(platform: Platform, name: str, produced: int) -> None:
    """Every record of the topic is in the staged table, once, and nothing else is."""
    verdict = verify.staged_exactly_once(platform.consumer(name), Produced(name, produced, 0, 0), platform.marks(name))
    assert verdict.differences == ()


def assert_goes_on_exactly_once(platform: Platform, name: str) -> None:
    """What was produced meanwhile is staged without help, each record once."""
    platform.until(lambda: platform.staged_all(name), f"{name} is staged", 120)
    assert_each_record_once(platform, name, sum(mark.high for mark in platform.marks(name).values()))


def green_checks(platform: Platform, key: list[str]) -> list[str]:
    """The checks of an asset that succeeded on what was last materialized."""
    found = platform.ask(
        "query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { assetChecksOrError {"
        " ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } } }",
        key={"path": key},
    )
    checks = found["assetChecksOrError"]["checks"]
    done = {check["name"]: (check["executionForLatestMaterialization"] or {}).get("status") for check in checks}
    assert "FAILED" not in done.values(), done
    return [name for name, status in done.items() if status == "SUCCEEDED"]


def days_of_flights(start: int, end: int) -> list[str]:
    """The windows of these records of the sample, in their order."""
    return list(sample("flights").frame(SEED)[start:end]["time_hour"].dt.strftime("%Y-%m-%d"))


def delays(platform: Platform) -> Output:
    """The table that Spark writes, as it is."""
    return read_output(jobs(platform.settings)["airport_delays"])


def changed(before: Output, after: Output) -> set[str]:
    """The windows whose fingerprint differs."""
    windows = before.fingerprints.keys() | after.fingerprints.keys()
    return {window for window in windows if before.fingerprints.get(window) != after.fingerprints.get(window)}


def events_after(platform: Platform, seen: list[AssetMaterialization]) -> list[AssetMaterialization]:
    """Materializations of the delays since."""
    return platform.materializations("airport_delays")[len(seen) :]


def newest_of(platform: Platform, key: str, seen: list[AssetMaterialization]) -> dict[str, str]:
    """Data versions of the windows that were materialized since."""
    return dict(newest(platform.materializations(*key.split("/"))[len(seen) :]))


def with_rows(events: list[AssetMaterialization]) -> dict[str, str]:
    """The last data version of every window that has rows."""
    return {window: version for window, version in newest(events).items() if version != EMPTY}


def unchanged(event: AssetMaterialization) -> bool:
    """Whether the run said that it left the window as it was."""
    return bool(event.metadata["unchanged"].value)


def backfill(platform: Platform, windows: list[str]) -> str:
    """What the UI's dialog does, until its run is through; the backfill's id. Dagster calls it completed a little later."""
    started = platform.ask(
        "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {"
        " ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }",
        p={"assetSelection": [{"path": ["airport_delays"]}], "partitionNames": windows},
    )["backfillId"]

    def through() -> bool:
        runs = platform.instance.get_runs(RunsFilter(tags={"dagster/backfill": started}))
        assert all(run.status != DagsterRunStatus.FAILURE for run in runs)
        return bool(runs) and all(run.status == DagsterRunStatus.SUCCESS for run in runs)

    platform.until(through, "the backfill's run is through", 180)
    return str(started)


def completed(platform: Platform, backfill_id: str) -> bool:
    """Whether the UI shows it as completed."""
    found = platform.ask(
        "query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }",
        id=backfill_id,
    )
    assert "FAIL" not in found["status"], found
    return bool(found["status"] == "COMPLETED_SUCCESS")


@contextmanager
def replay(platform: Platform, topic: str) -> Iterator[None]:
    """Records keep coming, so that whatever happens to a run happens in the middle of its work."""
    stop = threading.Event()
    thread = threading.Thread(target=complete.replay_from_end, args=(topic, platform.bootstrap_servers, 800.0, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def working_run(platform: Platform, name: str) -> str:
    """The member's run, as soon as it has committed something new."""
    table = platform.consumer(name).staged
    known = DeltaTable(table).version()

    def member() -> str:
        alive = platform.runs(f"ingest_{name}", [DagsterRunStatus.STARTED])
        batches = [commit.member for commit in commits(table, known) if commit.kind == "batch"]
        return next((run for run in alive if run in batches), "")

    platform.until(lambda: bool(member()), f"a member of {name} commits", 120)
    return member()
