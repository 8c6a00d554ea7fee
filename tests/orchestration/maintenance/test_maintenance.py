"""Compaction and vacuum: what they choose, what they leave alone, and that nobody who reads or writes meanwhile is disturbed."""

import os
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from consumers.clock import ManualClock, SystemClock
from consumers.config import ConsumerConfig
from consumers.maintenance import Maintenance
from consumers.staging.log import commits
from consumers.staging.rewrite import Replacement, Rewriter, Snapshot
from consumers.staging.writing import HOOKS
from orchestration.checks.staged import no_duplicates, offsets_accounted_for, ranges_join, snapshot
from orchestration.maintenance.assets import JOB, maintenance_assets, maintenance_definitions, tables_of
from orchestration.maintenance.compaction import Piece, compact, plan
from orchestration.maintenance.health import File, health
from orchestration.maintenance.protect import Follower, followed
from orchestration.maintenance.run import Kind, Table, maintain, unsafe_settings
from orchestration.maintenance.vacuum import Reclaimed, vacuum
from tests.consumers.parts import consumer, contents, offsets
from tests.consumers.staging.rewriting import GOOD, WINDOW, Ingestion, again
from tests.consumers.world import World

ALL = Maintenance(newest_windows=0)
LONG_AGO = 1_600_000_000


def file(window: str, size: int = 10, name: str = "f") -> File:
    return File(f"{window}/{name}", (("_window", window),), size, 1)


def test_windows_with_most_small_files_come_first_and_the_newest_are_left_alone() -> None:
    found = [file(w, name=str(i)) for w, count in (("01", 2), ("02", 5), ("03", 1), ("04", 9)) for i in range(count)]
    assert plan(found, Maintenance(newest_windows=1)) == [
        Piece((("_window", "02"),), 5, 50),
        Piece((("_window", "01"),), 2, 20),
    ]


def test_a_run_reads_no_more_bytes_than_allowed_but_does_take_one_partition() -> None:
    mib = 2**20
    found = [file(w, size * mib, str(i)) for w, size in (("01", 3), ("02", 2), ("03", 1)) for i in range(2)]
    limits = Maintenance(newest_windows=0, small_file_bytes=100 * mib, bytes_per_run=4 * mib)
    assert [piece.part[0][1] for piece in plan(found, limits)] == ["01"]
    assert [piece.part[0][1] for piece in plan(found[2:], limits)] == ["02"]


def test_large_files_are_left_as_they_are() -> None:
    assert plan([file("01", 2**30, "a"), file("01", 2**30, "b"), file("01")], ALL) == []


def test_health_tells_small_files_and_windows_over_budget() -> None:
    found = [file("01", 10, str(i)) for i in range(3)] + [file("02", 100)]
    told = health(7, found, 50, 2)
    assert (told.files, told.bytes, told.small_files, told.small_file_share) == (4, 130, 3, 0.75)
    assert (told.windows, told.most_files, told.over_budget) == (2, 3, {"01": 3})


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for end in (10, 20, 30):
        if end > 10:
            made.produce(0, end - 10, end)
        made.catch_up()
    return made


def sound(world: World) -> None:
    shot = snapshot(world.parts)
    assert shot is not None
    assert not [*ranges_join(shot.book).problems, *no_duplicates(shot).problems, *offsets_accounted_for(shot).problems]


def test_compaction_changes_no_row_no_position_and_nothing_that_the_log_tells(world: World) -> None:
    rows, positions, log = offsets(world.parts.staged), world.positions, commits(world.parts.staged)
    done = compact(DeltaTable(world.parts.staged), ALL)
    assert (done.partitions, done.removed, done.added) == (1, 3, 1)
    assert len(DeltaTable(world.parts.staged).file_uris()) == 1
    assert (offsets(world.parts.staged), world.positions, commits(world.parts.staged)) == (rows, positions, log)
    sound(world)
    world.produce(0, 30, 40)
    world.catch_up()
    assert world.places == world.once(40, 10)
    sound(world)


def test_a_second_compaction_has_nothing_to_do(world: World) -> None:
    compact(DeltaTable(world.parts.staged), ALL)
    version = DeltaTable(world.parts.staged).version()
    assert compact(DeltaTable(world.parts.staged), ALL).partitions == 0
    assert DeltaTable(world.parts.staged).version() == version


def test_an_append_during_a_compaction_stays(world: World) -> None:
    stale = DeltaTable(world.parts.staged)
    world.produce(0, 30, 40)
    world.catch_up()
    assert compact(stale, ALL).partitions == 1
    assert world.places == world.once(40, 10)


def test_a_partition_that_others_rewrote_meanwhile_is_left_to_them(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    ingestion = Ingestion(parts)
    for _ in range(3):
        ingestion.stage(GOOD)
    stale = DeltaTable(parts.staged)
    Rewriter(parts, ManualClock(5)).rewrite(WINDOW, again(parts, [b'{"a": 2}'] * 3))
    done = compact(stale, ALL)
    assert (done.partitions, done.conflicts) == (0, 1)
    assert contents(parts.staged)["a"].to_pylist() == [2, 2, 2]


def test_compaction_waits_for_nobody_who_is_about_to_rewrite_and_doubles_nothing(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    ingestion = Ingestion(parts)
    for _ in range(3):
        ingestion.stage(GOOD)
    seen: list[tuple[int, int]] = []
    make = again(parts, [b'{"a": 2}'] * 3)

    def make_while_others_compact(before: Snapshot) -> Replacement:
        done = compact(DeltaTable(parts.staged), ALL)
        seen.append((done.partitions, done.conflicts))
        return make(before)

    Rewriter(parts, ManualClock(5)).rewrite(WINDOW, make_while_others_compact)
    assert seen == [(0, 1)]
    assert contents(parts.staged)["a"].to_pylist() == [2, 2, 2]
    assert compact(DeltaTable(parts.staged), ALL).conflicts == 0


def test_z_order_sorts_what_is_compacted(tmp_path: Path) -> None:
    for values in ([3, 1], [2, 4]):
        write_deltalake(tmp_path / "t", pa.table({"a": values}), mode="append")
    compact(DeltaTable(tmp_path / "t"), Maintenance(newest_windows=0, z_order=["a"]))
    assert contents(tmp_path / "t")["a"].to_pylist() == [1, 2, 3, 4]


def test_partitions_of_several_columns_are_compacted_each_for_itself(tmp_path: Path) -> None:
    for _ in range(2):
        rows = pa.table({"a": [1, 2], "_window": ["2024-01-01"] * 2, "_inputs": ["x", "y"]})
        write_deltalake(tmp_path / "t", rows, mode="append", partition_by=["_window", "_inputs"])
    done = compact(DeltaTable(tmp_path / "t"), ALL)
    assert (done.partitions, done.removed, done.added) == (2, 4, 2)


def data_files(table: Path) -> set[str]:
    return {path.name for path in table.rglob("*.parquet") if "_delta_log" not in path.parts}


def test_vacuum_takes_replaced_files_and_leftovers_of_dead_runs_and_their_folders(world: World) -> None:
    compact(DeltaTable(world.parts.staged), ALL)
    attempt = world.parts.staged / "attempt-dead" / "_window=2023-11-14"
    attempt.mkdir(parents=True)
    (attempt / "part-0.parquet").write_bytes(b"x" * 100)
    log = world.parts.staged / "attempt-dead" / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text("{}")
    reclaimed = vacuum(DeltaTable(world.parts.staged), 0, SystemClock())
    assert reclaimed.files >= 5
    assert reclaimed.bytes > 100
    assert not (world.parts.staged / "attempt-dead").exists()
    assert world.places == world.once(30, 10)
    sound(world)


def test_vacuum_is_not_stopped_by_somebody_who_removes_rows_meanwhile(tmp_path: Path) -> None:
    for number in (1, 2):
        write_deltalake(str(tmp_path), pa.table({"x": [number]}), mode="append")
    loaded = DeltaTable(tmp_path)
    left = tmp_path / "attempt-dead" / "part-0.parquet"
    left.parent.mkdir()
    left.write_bytes(b"x" * 100)
    os.utime(left, (LONG_AGO, LONG_AGO))
    DeltaTable(tmp_path).delete("x = 1")
    assert vacuum(loaded, 24, SystemClock()) == Reclaimed(1, 100)
    assert not left.exists()
    assert contents(tmp_path)["x"].to_pylist() == [2]


def test_vacuum_leaves_what_is_younger_than_the_safe_age(world: World) -> None:
    compact(DeltaTable(world.parts.staged), ALL)
    before = data_files(world.parts.staged)
    assert vacuum(DeltaTable(world.parts.staged), 24, SystemClock()).files == 0
    assert data_files(world.parts.staged) == before


def test_vacuum_keeps_all_that_a_reader_who_lags_behind_may_still_ask_for(world: World) -> None:
    first = next(commit.version for commit in commits(world.parts.staged) if commit.rows)
    read = {uri for version in range(first, DeltaTable(world.parts.staged).version() + 1) for uri in uris(world, version)}
    compact(DeltaTable(world.parts.staged), ALL)
    vacuum(DeltaTable(world.parts.staged), 0, ManualClock(SystemClock().time() + 60), protected=first)
    assert all(Path(uri).exists() for uri in read)
    vacuum(DeltaTable(world.parts.staged), 0, SystemClock())
    assert not any(Path(uri).exists() for uri in read)


def uris(world: World, version: int) -> list[str]:
    return DeltaTable(world.parts.staged, version=version).file_uris()


def test_a_round_leaves_a_healthy_table_and_says_what_it_did(world: World) -> None:
    settings = Maintenance(newest_windows=0, files_per_window=2)
    done = maintain(Table("c", "staged", world.parts.staged, settings), SystemClock())
    assert done is not None
    assert (done.before.files, done.after.files, done.before.over_budget) == (3, 1, {"2023-11-14": 3})
    assert not done.after.over_budget
    assert done.compacted.bytes == done.before.bytes
    sound(world)


def test_a_table_that_does_not_exist_yet_is_passed_over(tmp_path: Path) -> None:
    assert maintain(Table("c", "staged", tmp_path / "none"), SystemClock()) is None


def test_positions_and_the_log_survive_checkpoints_and_rounds(world: World) -> None:
    positions, log = world.positions, commits(world.parts.staged)
    for _ in range(3):
        maintain(Table("c", "staged", world.parts.staged, ALL), SystemClock())
        DeltaTable(world.parts.staged).create_checkpoint()
    assert (world.positions, commits(world.parts.staged)) == (positions, log)


def published(table: Path, value: int) -> None:
    told = CommitProperties(custom_metadata={"weir": '{"kind":"publish"}'})
    rows = pa.table({"a": [value]})
    write_deltalake(table, rows, mode="append", commit_properties=told, post_commithook_properties=HOOKS)


def log_of(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json"))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A job's table whose first three commits are long past."""
    table = tmp_path / "output"
    for value in range(3):
        published(table, value)
    DeltaTable(table).create_checkpoint()
    for path in (table / "_delta_log").iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO))
    for value in range(3, 5):
        published(table, value)
    return table


KEEP_FILES = Maintenance(small_file_bytes=1)


def test_the_log_of_an_output_goes_as_far_as_nobody_needs_it(output: Path) -> None:
    maintain(Table("o", "output", output, KEEP_FILES), SystemClock())
    assert log_of(output)[0] > 0
    assert sorted(contents(output)["a"].to_pylist()) == list(range(5))


@pytest.mark.parametrize("kind", ["staged", "dead_letters"])
def test_the_log_of_what_ingestion_writes_stays(output: Path, kind: Kind) -> None:
    maintain(Table("o", kind, output, KEEP_FILES), SystemClock())
    assert log_of(output)[:5] == [0, 1, 2, 3, 4]


def test_the_log_stays_while_a_follower_has_to_read_it(output: Path) -> None:
    maintain(Table("o", "output", output, KEEP_FILES), SystemClock(), protected=1)
    assert log_of(output)[:5] == [0, 1, 2, 3, 4]


def test_the_log_stays_while_it_says_which_rows_only_moved_to_other_files(tmp_path: Path) -> None:
    table = tmp_path / "output"
    published(table, 0)
    published(table, 1)
    compact(DeltaTable(table), ALL)
    for path in (table / "_delta_log").glob("*.json"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    published(table, 2)
    DeltaTable(table).create_checkpoint()
    maintain(Table("o", "output", table, KEEP_FILES), SystemClock())
    assert log_of(table)[:4] == [0, 1, 2, 3]


def test_settings_that_would_forget_positions_are_named(world: World) -> None:
    table = DeltaTable(world.parts.staged)
    assert unsafe_settings(table, "staged") == ()
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
    table.alter.set_table_properties({"delta.enableExpiredLogCleanup": "true"})
    assert len(unsafe_settings(DeltaTable(world.parts.staged), "staged")) == 2


def test_the_slowest_follower_of_a_table_decides(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "in", pa.table({"a": [1]}))
    for job, version in (("fast", 9), ("slow", 4)):
        known = CommitProperties(app_transactions=[Transaction(f"{job}/input/x", version)])
        write_deltalake(tmp_path / job, pa.table({"a": [1]}), commit_properties=known)
    followers = [Follower(job, tmp_path / job, {"x": tmp_path / "in"}) for job in ("fast", "slow", "new")]
    assert followed(followers) == {tmp_path / "in": 4}


def test_off_in_the_definition_leaves_a_consumers_tables_alone(tmp_path: Path) -> None:
    assert [table.name for table in tables_of(consumer(tmp_path))] == ["c", "c_dead_letters"]
    assert tables_of(consumer(tmp_path, maintenance=False)) == []
    read = ConsumerConfig.model_validate(
        {"topic": "t", "schema": {"a": "long"}, "window": "day", "maintenance": {"keep_hours": 48}}
    )
    assert read.maintenance.keep_hours == 48


def materialized(world: World, settings: Mapping[str, object]) -> dg.ExecuteInProcessResult:
    parts = consumer(world.parts.staged.parent, maintenance=dict(settings))
    assets = maintenance_assets(tables_of(parts))
    defs = dg.Definitions.merge(dg.Definitions(assets=assets), maintenance_definitions(["c", "c_dead_letters"]))
    return defs.resolve_job_def(JOB).execute_in_process(instance=dg.DagsterInstance.ephemeral())


def test_the_job_looks_after_every_table_and_shows_its_health(world: World) -> None:
    result = materialized(world, {"newest_windows": 0})
    shown = {event.asset_key.path[1]: event.materialization.metadata for event in result.get_asset_materialization_events()}  # type: ignore[union-attr]
    assert shown.keys() == {"c", "c_dead_letters"}
    assert (shown["c"]["files_before"].value, shown["c"]["files"].value) == (3, 1)
    assert all(check.passed for check in result.get_asset_check_evaluations())


def test_a_window_over_its_file_budget_is_a_warning(world: World) -> None:
    result = materialized(world, {"newest_windows": 1, "files_per_window": 2})
    failed = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert [(check.check_name, check.severity) for check in failed] == [("file_budget", dg.AssetCheckSeverity.WARN)]
