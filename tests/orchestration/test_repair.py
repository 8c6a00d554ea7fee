"""Repair: what differs is explained, what is safe is mended, and the rest is left with what to do."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consumers.clock import SystemClock
from consumers.errors import StorageError, WeirError
from consumers.staging.log import StagedCommit, commits
from consumers.types import TopicPartition, Watermarks
from orchestration import mirror
from orchestration.mirror_events import DATA_VERSION, data_version, staged_key
from orchestration.repair import Repairer, event_differences, group_differences, position_differences
from orchestration.sensors.repair import Seen, suspicion, tick
from tests.consumers.world import P0, P1, World

WINDOW = "2023-11-14"
KEY = staged_key("c")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.catch_up()
    # Delta dates its commits itself, and young ones are not missed yet.
    made.clock.advance(SystemClock().time() - made.clock.time() + 3600)
    return made


@pytest.fixture
def repairer(world: World, instance: dg.DagsterInstance) -> Repairer:
    return Repairer(instance, world.parts, world.admin, world.clock)


def mirrored(world: World, instance: dg.DagsterInstance) -> None:
    mirror.catch_up(instance, world.parts, instance.report_runless_asset_event, world.clock)
    world.clock.advance(3600)


def version_in(instance: dg.DagsterInstance) -> str:
    """The data version of the window's newest event."""
    [record] = instance.fetch_materializations(KEY, limit=1).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.partition == WINDOW
    return (record.asset_materialization.tags or {})[DATA_VERSION]


def newest(world: World) -> str:
    return data_version([commit for commit in commits(world.parts.staged) if WINDOW in commit.windows][-1])


def test_a_position_that_the_topic_does_not_have_is_never_mended() -> None:
    marks = {P0: Watermarks(5, 10), P1: Watermarks(0, 3)}
    behind, ahead = position_differences("t", {P0: 2, P1: 7}, marks, False)
    assert (behind.safe, ahead.safe) == (False, False)
    assert "offsets 2 to 4 are gone" in behind.explanation
    assert "ends at 3, before the committed 7" in ahead.explanation
    [recreated] = position_differences("t", {P0: 2, P1: 7}, marks, True)
    assert (recreated.safe, recreated.where) == (False, "t")
    assert position_differences("t", {P0: 5, P1: 3}, marks, False) == []


def test_group_offsets_that_differ_are_safe_to_set_where_the_topic_has_the_position() -> None:
    tps = [TopicPartition("t", p) for p in range(5)]
    positions = dict.fromkeys(tps, 5)
    marks = {tp: Watermarks(0, 9) for tp in tps[:4]} | {tps[4]: Watermarks(6, 9)}
    found = group_differences("g", positions, {tps[0]: 5, tps[1]: 3, tps[2]: 8, tps[4]: 1}, marks)
    assert [(d.where, d.safe) for d in found] == [("t/1", True), ("t/2", True), ("t/3", True)]
    assert [text in d.explanation for d, text in zip(found, ("behind", "ahead", "has no offset"), strict=True)] == [True] * 3


def test_windows_are_told_together_by_what_is_wrong_with_their_events() -> None:
    one, two = StagedCommit("a" * 8, "batch", "c", "m", version=1), StagedCommit("b" * 8, "batch", "c", "m", version=2)
    behind = [mirror.Behind("w1", (one,)), mirror.Behind("w2", (two,), "1-aaaaaaaa"), mirror.Behind("w3", (two,), "by hand")]
    found = event_differences([*behind, mirror.Behind("w0", (one,))], [one, two])
    assert [(d.where, d.explanation.partition(":")[0]) for d in found] == [
        ("2: w0, w1", "has no event"),
        ("1: w2", "has an older event"),
        ("1: w3", "was reported by hand"),
    ]


def test_nothing_differs_where_all_is_well(world: World, instance: dg.DagsterInstance, repairer: Repairer) -> None:
    mirrored(world, instance)
    assert repairer.look() == []


def test_nothing_differs_where_there_is_no_table_yet(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    fresh = World(tmp_path)
    assert Repairer(instance, fresh.parts, fresh.admin, fresh.clock).look() == []
    assert not fresh.parts.staged.exists()


def test_events_that_were_lost_are_written(world: World, instance: dg.DagsterInstance, repairer: Repairer) -> None:
    assert [each.kind for each in repairer.look()] == ["events"]
    assert [each.mended for each in repairer.mend(repairer.look())] == [True]
    assert version_in(instance) == newest(world)
    assert repairer.look() == []


def test_events_that_were_wiped_are_written_again(world: World, instance: dg.DagsterInstance, repairer: Repairer) -> None:
    mirrored(world, instance)
    instance.wipe_assets([KEY])
    repairer.mend(repairer.look())
    assert version_in(instance) == newest(world)


@pytest.mark.parametrize("tags", [None, {DATA_VERSION: "mine"}])
def test_a_materialization_reported_by_hand_is_corrected(
    world: World, instance: dg.DagsterInstance, repairer: Repairer, tags: dict[str, str] | None
) -> None:
    mirrored(world, instance)
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=WINDOW, tags=tags))
    [found] = repairer.look()
    assert (found.kind, found.safe, WINDOW in found.where) == ("events", True, True)
    repairer.mend([found])
    assert version_in(instance) == newest(world)
    assert repairer.look() == []


@pytest.mark.parametrize("offset", [2, 10])
def test_offsets_of_a_group_without_members_are_set_to_the_position(
    world: World, instance: dg.DagsterInstance, repairer: Repairer, offset: int
) -> None:
    mirrored(world, instance)
    world.move({0: 5})
    world.clock.advance(3600)
    mirrored(world, instance)
    world.admin.set_group_offsets(world.parts.group, {P0: offset})
    [found] = repairer.look()
    assert (found.kind, found.where) == ("group", "t/0")
    assert [each.mended for each in repairer.mend([found])] == [True]
    assert world.admin.group_offsets(world.parts.group, "t") == {P0: 5, P1: 10}


def test_offsets_of_a_group_with_members_are_left_to_them(world: World, instance: dg.DagsterInstance, repairer: Repairer) -> None:
    mirrored(world, instance)
    world.admin.set_group_offsets(world.parts.group, {P0: 2})
    member = world.member()
    try:
        member.subscribe(Idle())
        member.poll(1, 0)
        [outcome] = repairer.mend(repairer.look())
        assert (outcome.mended, "left to the group's members" in outcome.said) == (False, True)
        assert world.admin.group_offsets(world.parts.group, "t")[P0] == 2
    finally:
        member.close()


class Idle:
    """A member that takes what it is given and does nothing."""

    def assigned(self, partitions: Any) -> Any:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Any) -> None: ...

    def lost(self, partitions: Any) -> None: ...


def test_group_offsets_of_a_recreated_topic_are_not_touched(
    world: World, instance: dg.DagsterInstance, repairer: Repairer
) -> None:
    mirrored(world, instance)
    world.admin.delete_topic("t")
    world.admin.create_topic("t", 2)
    [outcome] = repairer.mend(repairer.look())
    assert (outcome.mended, outcome.difference.kind) == (False, "position")
    assert world.admin.group_offsets(world.parts.group, "t") == {}


def test_without_kafka_the_events_are_mended_all_the_same(world: World, instance: dg.DagsterInstance) -> None:
    away = Repairer(instance, world.parts, WeirError("Kafka is away."), world.clock)
    outcomes = away.mend(away.look())
    assert [(each.difference.kind, each.mended) for each in outcomes] == [("kafka", False), ("events", True)]
    assert version_in(instance) == newest(world)


def looked(world: World, instance: dg.DagsterInstance, cursor: str | None) -> tuple[str, str]:
    """The sensor's reason, and its cursor."""
    result = tick(instance, [world.parts], world.admin, cursor, world.clock)
    assert isinstance(result.skip_reason, dg.SkipReason)
    world.clock.advance(3600)
    return str(result.skip_reason.skip_message), str(result.cursor)


def test_the_sensor_says_that_all_agrees_and_compares_no_events_then(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored(world, instance)
    _, cursor = looked(world, instance, None)
    monkeypatch.setattr(mirror, "compare", None)
    reason, _ = looked(world, instance, cursor)
    assert reason == "1 consumers: positions, group offsets and events agree"


def test_the_sensor_corrects_what_was_reported_by_hand_or_wiped(world: World, instance: dg.DagsterInstance) -> None:
    mirrored(world, instance)
    _, cursor = looked(world, instance, None)
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=WINDOW))
    reason, cursor = looked(world, instance, cursor)
    assert "1: 2023-11-14" in reason
    assert version_in(instance) == newest(world)
    instance.wipe_assets([KEY])
    _, cursor = looked(world, instance, cursor)
    assert version_in(instance) == newest(world)
    assert looked(world, instance, cursor)[0].endswith("agree")


def test_the_sensor_writes_events_that_nobody_else_has_written(world: World, instance: dg.DagsterInstance) -> None:
    reason, cursor = looked(world, instance, None)
    assert reason == "c: 2 late events were written"  # of the window, and of the dead letters
    assert version_in(instance) == newest(world)
    assert looked(world, instance, cursor)[0].endswith("agree")


def test_the_sensor_sets_group_offsets_and_tells(world: World, instance: dg.DagsterInstance) -> None:
    mirrored(world, instance)
    world.admin.set_group_offsets(world.parts.group, {P0: 2})
    reason, _ = looked(world, instance, None)
    assert "the position is 10: behind" in reason
    assert world.admin.group_offsets(world.parts.group, "t")[P0] == 10


def test_the_sensor_goes_on_without_kafka_and_says_so(world: World, instance: dg.DagsterInstance) -> None:
    mirrored(world, instance)
    result = tick(instance, [world.parts], WeirError("it is away."), None, world.clock)
    assert isinstance(result.skip_reason, dg.SkipReason)
    assert "Kafka cannot be reached, so group offsets were not compared: it is away" in str(result.skip_reason.skip_message)


def test_the_sensor_does_not_let_one_consumer_hold_up_the_others(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Repairer.look

    def look(self: Repairer, events: bool = True) -> Any:
        if self._consumer.name == "broken":
            raise StorageError("its table cannot be read")
        return whole(self, events)

    monkeypatch.setattr(Repairer, "look", look)
    broken = world.parts.model_copy(update={"name": "broken"})
    result = tick(instance, [broken, world.parts], world.admin, None, world.clock)
    world.admin.set_group_offsets(world.parts.group, {P0: 2})
    result = tick(instance, [broken, world.parts], world.admin, result.cursor, world.clock)
    assert isinstance(result.skip_reason, dg.SkipReason)
    assert "broken: its table cannot be read" in str(result.skip_reason.skip_message)
    assert world.admin.group_offsets(world.parts.group, "t")[P0] == 10


def test_events_of_commits_do_not_look_reported_by_hand(world: World, instance: dg.DagsterInstance) -> None:
    mirrored(world, instance)
    assert suspicion(instance, world.parts, Seen(0))[1] == ""
