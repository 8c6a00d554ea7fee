"""RESTORE of a staged table: positions follow, whoever notices and whenever, and each record is there once afterwards."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from consumers.clock import ManualClock
from consumers.errors import DataLoss, OwnershipLost
from consumers.processing.context import Context, Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.ingest import subscription_of
from consumers.processing.processor import Processor
from consumers.processing.replay import Selection, replay
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.strategy import Stage
from consumers.staging.follow import follow
from consumers.staging.log import StagedCommit, commits
from consumers.staging.rewrite import Rewriter
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange
from orchestration.checks.staged import no_duplicates, offsets_accounted_for, ranges_join, snapshot
from tests.consumers.parts import TP, consumer, contents, offsets
from tests.consumers.staging.rewriting import GOOD, WINDOW, Ingestion, again, letters, rows
from tests.consumers.world import BAD, P0, P1, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.catch_up()
    for partition in (0, 1):
        made.produce(partition, 10, 20)
    made.catch_up()
    assert made.places == made.once(20, 20)
    return made


def version(world: World) -> int:
    return DeltaTable(world.parts.staged).version()


def restore(world: World, to: int) -> None:
    DeltaTable(world.parts.staged).restore(to)


def early(world: World) -> int:
    """The version in which both partitions stood at 10."""
    return next(commit.version for commit in reversed(commits(world.parts.staged)) if commit.ranges and _end(commit) == 10)


def _end(commit: StagedCommit) -> int:
    return max(step.end for step in commit.ranges.values())


def followed(world: World) -> list[StagedCommit]:
    return [commit for commit in commits(world.parts.staged) if commit.by == "restore"]


def require_sound(world: World) -> None:
    shot = snapshot(world.parts)
    assert shot is not None
    assert not ranges_join(shot.book).problems
    assert not no_duplicates(shot).problems
    assert not offsets_accounted_for(shot).problems


def test_positions_follow_a_restore_when_the_next_member_starts(world: World) -> None:
    restore(world, early(world))
    world.catch_up()
    assert world.places == world.once(20, 20)
    [move] = followed(world)
    assert (move.kind, move.why) == ("move", f"table restored to version {early(world)}")
    assert move.starts == {P0: 10, P1: 10}
    assert move.moved == {P0: OffsetRange(10, 20), P1: OffsetRange(10, 20)}
    require_sound(world)


def test_a_restore_is_followed_once(world: World) -> None:
    restore(world, early(world))
    world.catch_up()
    world.catch_up()
    assert len(followed(world)) == 1


def test_the_move_names_the_windows_that_the_restore_changed(world: World) -> None:
    restore(world, early(world))
    world.catch_up()
    assert set(followed(world)[0].windows) == {"2023-11-14"}


def test_a_restore_to_the_empty_table_reads_from_the_start(world: World) -> None:
    restore(world, 0)
    world.catch_up()
    assert followed(world)[0].starts == {P0: 0, P1: 0}
    assert world.places == world.once(20, 20)
    require_sound(world)


def test_a_restore_to_a_time_finds_the_version_by_its_files(world: World) -> None:
    log = world.parts.staged / "_delta_log"
    restore(world, early(world))
    path = log / f"{version(world):020d}.json"
    # As Spark writes it for TIMESTAMP AS OF: a text in the session's time zone, and no version.
    path.write_text(path.read_text().replace(f'"version":"{early(world)}"', '"timestamp":"2024-01-01 00:00:00.0"'))
    assert '"timestamp":"2024' in path.read_text()
    world.catch_up()
    assert followed(world)[0].starts == {P0: 10, P1: 10}
    assert world.places == world.once(20, 20)


def test_restores_after_each_other_are_followed_by_the_last_one(world: World) -> None:
    late = version(world)
    restore(world, 0)
    restore(world, late)
    restore(world, early(world))
    world.catch_up()
    assert world.places == world.once(20, 20)
    restore(world, early(world) + 1)
    world.catch_up()
    assert world.places == world.once(20, 20)
    require_sound(world)


def test_a_restore_to_a_version_between_a_restore_and_its_move_reads_from_before_both(world: World) -> None:
    restore(world, early(world))
    between = version(world)
    world.catch_up()
    restore(world, between)
    world.catch_up()
    assert [move.starts for move in followed(world)] == [{P0: 10, P1: 10}] * 2
    assert world.places == world.once(20, 20)
    require_sound(world)


def test_a_restore_past_a_move_back_does_not_leave_rows_twice(world: World) -> None:
    late = version(world)
    world.move({0: 4})
    restore(world, late)
    world.catch_up()
    assert world.places == world.once(20, 20)
    require_sound(world)


def test_a_move_by_hand_after_a_restore_holds(world: World) -> None:
    restore(world, early(world))
    world.move("latest")
    world.catch_up()
    assert world.places == world.once(10, 10)
    assert world.positions == {P0: 20, P1: 20}


def test_dead_letters_of_what_is_read_again_are_there_once(world: World) -> None:
    restore(world, 0)
    world.catch_up()
    assert followed(world)
    assert sorted(at[2] for at in offsets(world.parts.dead_letters)) == sorted(BAD)


def test_what_the_topic_no_longer_holds_stops_the_consumer_or_is_recorded_as_lost(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.catch_up()
    restore(world, 0)
    world.admin.delete_records({P0: 5})
    with pytest.raises(DataLoss, match="offsets 0 to 4"):
        world.catch_up()
    config = world.parts.config.model_copy(update={"on_data_loss": "record"})
    world.parts = world.parts.model_copy(update={"config": config})
    world.catch_up()
    assert [commit.lost for commit in commits(world.parts.staged) if commit.lost] == [{P0: OffsetRange(0, 5)}]
    assert world.places == {at: 1 for at in world.once() if not (at[1] == 0 and at[2] < 5)}


def test_dead_letters_that_a_replay_had_made_rows_wait_again(tmp_path: Path) -> None:
    old, new = consumer(tmp_path, schema={"a": {"type": "long", "nullable": False}}), consumer(tmp_path)
    Ingestion(old).stage(GOOD, b"{}", GOOD)
    before = DeltaTable(new.staged).version()
    replay(new, Selection(), "v2", ManualClock(5000))
    assert letters(new) == {1: (None, None, True)}
    DeltaTable(new.staged).restore(before)
    Owner(new, "next", ManualClock(6000)).positions([TP])
    assert rows(new) == [0, 2]
    assert letters(new) == {1: (None, None, False)}


def test_dead_letters_that_a_rewrite_had_made_of_rows_are_resolved_again(tmp_path: Path) -> None:
    old, new = consumer(tmp_path), consumer(tmp_path, schema={"a": {"type": "long", "nullable": False}})
    Ingestion(old).stage(GOOD, b"{}", GOOD)
    before = DeltaTable(new.staged).version()
    Rewriter(new, ManualClock(5000)).rewrite(WINDOW, again(new, [GOOD, b"{}", GOOD]))
    assert (rows(new), letters(new)) == ([0, 2], {1: (None, None, False)})
    DeltaTable(new.staged).restore(before)
    Owner(new, "next", ManualClock(6000)).positions([TP])
    assert (rows(new), letters(new)) == ([0, 1, 2], {1: (None, None, True)})


class Running:
    """A member that is stepped by the test."""

    def __init__(self, world: World, name: str = "member") -> None:
        self.world = world
        self.broker = world.member()
        around = Surroundings(world.clock, random=Random(1))
        self.owner = Owner(world.parts, name, world.clock)
        self.processor = Processor(subscription_of(world.parts), self.broker, self.owner, self._build, around)
        self.processor.start()

    def _build(self, context: Context) -> Stage:
        same = Incarnation(self.broker.topic_id, self.world.clock)
        return Stage(self.world.parts, self.owner, context, same, self.broker.high_watermarks, lambda commit: None)

    def step(self) -> None:
        self.processor._until_caught_up = True  # a step commits what it has read
        self.world.clock.advance(0.5)
        self.processor.step()


def until(members: list[Running], done: object) -> None:
    for _ in range(600):
        if done():  # type: ignore[operator]
            return
        for member in members:
            member.step()
    raise AssertionError([member.processor.positions for member in members])


@pytest.fixture
def running(world: World) -> Iterator[list[Running]]:
    members = [Running(world, "one"), Running(world, "two")]
    until(members, lambda: all(len(member.processor.positions) == 1 for member in members))
    until(members, lambda: sum(sum(member.processor.positions.values()) for member in members) == 40)
    yield members
    for member in members:
        member.processor.end()
        member.broker.close()


def test_members_that_are_caught_up_notice_a_restore_and_read_again(world: World, running: list[Running]) -> None:
    restore(world, early(world))
    until(running, lambda: followed(world) and world.positions == {P0: 20, P1: 20})
    until(running, lambda: world.places == world.once(20, 20))
    assert len(followed(world)) == 1
    require_sound(world)


def test_members_that_commit_notice_a_restore_before_their_next_commit(world: World, running: list[Running]) -> None:
    restore(world, early(world))
    world.produce(0, 20, 30)
    world.produce(1, 20, 25)
    until(running, lambda: world.positions == {P0: 30, P1: 25})
    assert world.places == world.once(30, 25)
    require_sound(world)


def test_a_member_commits_nothing_into_a_table_that_was_restored_under_it(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    ingestion = Ingestion(parts)
    ingestion.stage(GOOD)
    before = DeltaTable(parts.staged).version()
    ingestion.stage(GOOD)
    DeltaTable(parts.staged).restore(before)
    with pytest.raises(OwnershipLost, match=f"restored to version {before}"):
        ingestion.stage(GOOD)
    assert commits(parts.staged, before + 2) == []


def test_a_batch_that_was_committed_before_anybody_noticed_is_there_once(
    world: World, running: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = StagedTable.require

    def late(self: StagedTable, *arguments: object) -> None:
        whole(self, *arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        restore(world, early(world))
        self._table.update_incremental()

    monkeypatch.setattr(StagedTable, "require", late)
    world.produce(0, 20, 30)
    until(running, lambda: followed(world) and world.positions == {P0: 30, P1: 20})
    assert world.places == world.once(30, 20)
    require_sound(world)


def test_restores_of_a_running_table_lose_nothing_however_often(world: World, running: list[Running]) -> None:
    end = 20
    for target in (early(world), 0, early(world)):
        restore(world, target)
        world.produce(0, end, end + 5)
        end += 5
        until(running, lambda end=end: world.positions == {P0: end, P1: 20})  # type: ignore[misc]
    assert world.places == world.once(end, 20)
    require_sound(world)


def test_a_crash_after_the_move_is_made_good_by_the_next_member(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    restore(world, 0)
    owner = Owner(world.parts, "dies", world.clock)
    monkeypatch.setattr("consumers.staging.dead_letters.DeadLetterTable.acquire", _dies)
    with pytest.raises(KeyboardInterrupt):
        owner.positions([P0, P1])
    monkeypatch.undo()
    assert len(followed(world)) == 1
    world.catch_up()
    assert len(followed(world)) == 1
    assert world.places == world.once(20, 20)


def _dies(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_checks_say_so_while_nobody_has_followed(world: World) -> None:
    restore(world, early(world))
    shot = snapshot(world.parts)
    assert shot is not None
    [said] = ranges_join(shot.book).problems
    assert "restored to version" in said
    assert "no member has run since" in said
    assert ranges_join(shot.book).warning


def test_of_two_who_follow_at_once_one_does(world: World) -> None:
    restore(world, early(world))
    staged, owner = StagedTable(world.parts, world.clock), Owner(world.parts, "two", world.clock)
    staged.positions([P0])
    found = staged.restored()
    assert found is not None
    owner.positions([P0])
    with pytest.raises(OwnershipLost, match="moved the position"):
        follow(world.parts, found, staged, owner._dead_letters, "one", world.clock)
    assert len(followed(world)) == 1
    assert contents(world.parts.staged).num_rows == 18
