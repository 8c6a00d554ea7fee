"""Moving positions: the plan, what is refused, both tables in one step, running members, and a crash at every point."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from consumers.brokers.memory import MemoryAdmin, MemoryTransactionalProducer
from consumers.errors import ConfigError, OwnershipLost, StorageError
from consumers.processing.context import Context, Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.ingest import subscription_of
from consumers.processing.move import Plan, Step, cut_floors, plan
from consumers.processing.processor import Processor
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.strategy import Stage
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.delta import commit, transactions
from consumers.staging.log import StagedCommit, commits
from consumers.staging.positions import rewrites_id
from consumers.staging.schema import DEAD_LETTERS
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange, Watermarks
from tests.consumers.parts import contents, offsets
from tests.consumers.world import BAD, NOW, P0, P1, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.catch_up()
    assert made.places == made.once()
    return made


def test_a_plan_says_what_is_skipped_and_what_is_read_again() -> None:
    marks = {P0: Watermarks(2, 10), P1: Watermarks(0, 9)}
    found = plan({P0: 6, P1: 5}, marks, {P0: 4, P1: 9})
    assert found == Plan((Step(P0, 6, 4), Step(P1, 5, 9)))
    assert [(s.skipped, s.again, s.range) for s in found.steps] == [(0, 2, OffsetRange(4, 6)), (4, 0, OffsetRange(5, 9))]


def test_a_plan_leaves_out_partitions_that_stand_there() -> None:
    assert plan({P0: 6}, {P0: Watermarks(0, 9)}, {P0: 6}) == Plan(())


@pytest.mark.parametrize(
    ("position", "to", "floor", "why"),
    [
        (
            6,
            1,
            0,
            "t/0: offsets 1 to 1 are gone from the topic, which begins at 2: .* could not be read again. Move to 2 or later",
        ),
        (6, 11, 0, r"t/0: offset 11 is past the end of what can be read \(10\)"),
        (None, 5, 0, "t/0: it has no position yet"),
        (12, 5, 0, "t/0: the topic ends at 10, before the position 12"),
        (6, 4, 5, "t/0: the log was cut short at offset 5"),
    ],
)
def test_a_plan_refuses_what_could_not_be_read_again(position: int | None, to: int, floor: int, why: str) -> None:
    [refusal] = plan({P0: position}, {P0: Watermarks(2, 10)}, {P0: to}, {P0: floor}).refusals
    assert re.match(why, refusal)


def test_a_log_that_was_cut_short_is_never_moved_to_before_the_cut() -> None:
    cut = StagedCommit("x", "acquire", "c", "m", starts={P0: 5, P1: 4}, lost={P0: OffsetRange(5, 8), P1: OffsetRange(0, 4)})
    assert cut_floors([cut]) == {P0: 5}


def test_a_move_back_removes_rows_and_dead_letters_and_reading_again_brings_each_back_once(world: World) -> None:
    moved = world.move("earliest", [0])
    assert moved.commit is not None
    assert (moved.commit.removed, moved.commit.kind, moved.commit.by, moved.commit.why) == (8, "move", "ann", "test")
    assert moved.commit.moved == {P0: OffsetRange(0, 10)}
    assert world.places == {at: 1 for at in world.once() if at[1] == 1}
    assert contents(world.parts.dead_letters).num_rows == 0
    world.catch_up()
    assert world.places == world.once()


def test_the_commit_names_the_windows_whose_rows_went(world: World) -> None:
    moved = world.move({0: 5})
    assert moved.commit is not None
    assert {w: c.rows for w, c in moved.commit.windows.items()} == {"2023-11-14": 0}
    [newest] = commits(world.parts.staged)[-1:]
    assert (newest.kind, newest.starts, newest.removed, newest.version) == ("move", {P0: 5}, 4, moved.commit.version)


def test_partitions_move_back_and_forth_in_one_commit(world: World) -> None:
    world.produce(1, 10, 20)
    version = DeltaTable(world.parts.staged).version()
    world.move({0: 4, 1: 15})
    assert world.positions == {P0: 4, P1: 15}
    moves = [each.moved for each in commits(world.parts.staged, version) if each.kind == "move"]
    assert moves == [{P0: OffsetRange(4, 10), P1: OffsetRange(10, 15)}]
    world.catch_up()
    assert world.places == {at: 1 for at in world.once(10, 20) if not (at[1] == 1 and 10 <= at[2] < 15)}


def test_a_move_to_a_time_goes_to_its_first_record(world: World) -> None:
    world.move(datetime.fromtimestamp(NOW + 4, UTC))
    assert world.positions == {P0: 4, P1: 4}


def test_a_preview_counts_the_rows_that_would_go_and_changes_nothing(world: World) -> None:
    version = DeltaTable(world.parts.staged).version()
    found, gone = world.mover().preview({0: 5, 1: 8})
    assert (found.steps, dict(gone)) == ((Step(P0, 10, 5), Step(P1, 10, 8)), {"2023-11-14": 6})
    assert DeltaTable(world.parts.staged).version() == version


def test_a_move_to_where_everything_stands_changes_nothing(world: World) -> None:
    version = DeltaTable(world.parts.staged).version()
    assert world.move("latest").commit is None
    assert DeltaTable(world.parts.staged).version() == version


def test_a_move_to_the_end_stops_before_an_open_transaction(world: World) -> None:
    writer = MemoryTransactionalProducer(world.cluster, "tx")
    writer.begin()
    writer.send("t", b'{"a":1}', partition=0)
    writer.flush(1)
    world.produce(0, 11, 12)
    assert not world.mover().preview("latest")[0].steps


def test_a_refused_move_changes_nothing_and_says_why(world: World) -> None:
    world.admin.delete_records({P0: 5})
    version = DeltaTable(world.parts.staged).version()
    with pytest.raises(ConfigError, match=r"nothing was moved\. t/0: offsets 2 to 4 are gone"):
        world.move({0: 2, 1: 3})
    assert DeltaTable(world.parts.staged).version() == version


def test_a_partition_that_is_not_there_is_refused_by_name(world: World) -> None:
    with pytest.raises(ConfigError, match="t/7: the topic has no such partition"):
        world.move("earliest", [7])


def test_a_consumer_without_a_table_is_told_to_use_start(tmp_path: Path) -> None:
    fresh = World(tmp_path)
    with pytest.raises(ConfigError, match="It has no table yet"):
        fresh.move("latest")
    assert not fresh.parts.staged.exists()


def test_positions_of_an_earlier_topic_are_not_moved(world: World) -> None:
    world.admin.delete_topic("t")
    world.admin.create_topic("t", 2)
    with pytest.raises(ConfigError, match="deleted and created again"):
        world.move("earliest")


def test_the_group_follows_when_it_has_no_members(world: World) -> None:
    assert world.move({0: 4}).group_told
    assert world.admin.group_offsets(world.parts.group, "t") == {P0: 4, P1: 10}


class Running:
    """A member that is stepped by the test."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = world.member()
        around = Surroundings(world.clock, random=Random(1))
        self.owner = Owner(world.parts, "member", world.clock)
        self.processor = Processor(subscription_of(world.parts), self.broker, self.owner, self._build, around)
        self.processor.start()

    def _build(self, context: Context) -> Stage:
        same = Incarnation(self.broker.topic_id, self.world.clock)
        return Stage(self.world.parts, self.owner, context, same, self.broker.high_watermarks, lambda commit: None)

    def until(self, wanted: Callable[[], bool], seconds: float = 0.5) -> None:
        self.processor._until_caught_up = True  # a step commits what it has read
        for _ in range(400):
            if wanted():
                self.processor._until_caught_up = False
                return
            self.world.clock.advance(seconds)
            self.processor.step()
        raise AssertionError(f"it did not come to that: {self.processor.positions}")

    def end(self) -> None:
        self.processor.end()
        self.broker.close()


@pytest.fixture
def running(world: World) -> Iterator[Running]:
    made = Running(world)
    yield made
    made.end()


def test_a_member_that_is_caught_up_notices_a_move_back_and_reads_again(world: World, running: Running) -> None:
    running.until(lambda: running.processor.positions == {P0: 10, P1: 10})
    assert not world.move({0: 4}).group_told
    running.until(lambda: world.positions == {P0: 10, P1: 10})
    assert world.places == world.once()
    running.until(lambda: world.admin.group_offsets(world.parts.group, "t") == {P0: 10, P1: 10})


def test_a_member_with_records_in_hand_is_fenced_and_goes_on_from_the_new_position(world: World, running: Running) -> None:
    running.until(lambda: running.processor.positions == {P0: 10, P1: 10})
    world.produce(0, 10, 20)
    running.processor.step()  # polled and submitted, not committed
    world.move({0: 15, 1: 3})
    running.until(lambda: world.positions == {P0: 20, P1: 10})
    assert world.places == {at: 1 for at in world.once(20, 10) if not (at[1] == 0 and 10 <= at[2] < 15)}


def leave_tentative(world: World) -> None:
    """A member takes partition 0 over at 10, writes the dead letter of offset 10, and dies before its staged commit."""
    world.produce(0, 10, 20)
    owner = Owner(world.parts, "dead", world.clock)
    owner.acquire(owner.positions([P0]), {P0: Start(10)}, "t-1")
    letter = {"_topic": "t", "_topic_id": "t-1", "_partition": 0, "_offset": 10, "_value": b"bad", "_reason": "bad"}
    rejects = pa.Table.from_pylist([letter], schema=DEAD_LETTERS)
    DeadLetterTable(world.parts, world.clock).append(rejects, {P0: owner.holds[P0].epoch})


def test_a_move_forward_leaves_no_tentative_dead_letter_among_the_skipped(world: World) -> None:
    leave_tentative(world)
    assert ("t-1", 0, 10) in offsets(world.parts.dead_letters)
    world.move({0: 15})
    assert ("t-1", 0, 10) not in offsets(world.parts.dead_letters)
    assert sorted(at[2] for at in offsets(world.parts.dead_letters)) == sorted(BAD)


class Crash(Exception):
    """The process ends here."""


CRASHES = [
    (DeadLetterTable, "epochs", 1),
    (StagedTable, "acquire", 1),
    (DeadLetterTable, "acquire", 1),
    (StagedTable, "move", 1),
    (DeadLetterTable, "acquire", 2),
    (MemoryAdmin, "set_group_offsets", 1),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "name", "call"), CRASHES, ids=[f"{k.__name__}.{n}-{c}" for k, n, c in CRASHES])
def test_a_crash_at_any_step_leaves_each_offset_in_one_place_once(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, call: int, after: bool
) -> None:
    leave_tentative(world)
    whole, count = getattr(kind, name), [0]

    def dies(self: Any, *arguments: Any) -> Any:
        count[0] += 1
        if count[0] < call:
            return whole(self, *arguments)
        if after:
            whole(self, *arguments)
        raise Crash

    monkeypatch.setattr(kind, name, dies)
    with pytest.raises(Crash):
        world.move({0: 15, 1: 3})  # one forward past a tentative dead letter, one back
    monkeypatch.undo()
    skipped = range(10, 15) if world.positions[P0] == 15 else range(0)
    world.catch_up()
    assert world.places == {at: 1 for at in world.once(20, 10) if not (at[1] == 0 and at[2] in skipped)}


def test_a_move_starts_again_when_a_member_commits_in_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, done = StagedTable.move, []

    def contested(self: Any, *arguments: Any) -> Any:
        if not done:
            done.append(True)
            world.produce(0, 10, 12)
            world.catch_up()
        return whole(self, *arguments)

    monkeypatch.setattr(StagedTable, "move", contested)
    moved = world.move({0: 4})
    assert moved.plan.steps == (Step(P0, 12, 4),)
    world.catch_up()
    assert world.places == world.once(12, 10)


def test_a_move_against_members_that_never_pause_gives_up_and_says_what_to_stop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: Any, *arguments: Any) -> Any:
        raise OwnershipLost("somebody else")

    monkeypatch.setattr(StagedTable, "move", lost)
    with pytest.raises(StorageError, match=r"No position was moved\. Stop its members"):
        world.move({0: 4})


def test_a_move_and_a_rewrite_of_the_same_table_do_not_pass_each_other(world: World) -> None:
    rewriter = DeltaTable(world.parts.staged)
    world.move({0: 4})
    with pytest.raises(OwnershipLost):
        commit(rewriter, StagedTable(world.parts, world.clock).schema, ["_window"], [], transactions({rewrites_id("c"): 1}))
