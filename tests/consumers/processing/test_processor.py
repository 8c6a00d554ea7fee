"""The engine over real tables and a scripted broker."""

import threading
from pathlib import Path

import pytest

from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.errors import DataLoss, FatalError, InvalidLimit
from consumers.monitoring.recorded import Recorded
from consumers.processing.context import Surroundings
from consumers.processing.ingest import IngestResult, stage_from
from consumers.processing.processor import Limits
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.owner import Owner
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.positions import committed_positions
from consumers.staging.staged import StagedTable
from consumers.types import TopicPartition, Watermarks
from tests.consumers.parts import TP, batch, consumer, offsets
from tests.consumers.scripted_broker import ScriptedBroker, Step, assign, give, lose, revoke

OTHER = TopicPartition("t", 1)
FAST = {"batch": {"max_latency_seconds": 0.02}}
ROWS = [b'{"a":0}', b"bad", b'{"a":2}']


class QuickClock(SystemClock):
    """Real time, but no waiting."""

    def sleep(self, seconds: float) -> None:
        pass


def run(
    parts: Consumer, broker: ScriptedBroker, seconds: float | None = 10.0, stop: threading.Event | None = None
) -> IngestResult:
    limits = Limits(until_caught_up=stop is None, max_seconds=seconds)
    return stage_from(broker, parts, "m", stop or threading.Event(), limits, lambda commit: None, Surroundings(QuickClock()))


def broker(*steps: Step, high: int = 3, low: int = 0, **more: str) -> ScriptedBroker:
    return ScriptedBroker(steps, {TP: Watermarks(low, high), OTHER: Watermarks(0, 0)}, **more)


def places(parts: Consumer) -> dict[tuple[str, int, int], int]:
    return dict(offsets(parts.staged) + offsets(parts.dead_letters))


def steal(parts: Consumer) -> Step:
    """Another member takes the partition over, where it stands."""

    def step(_: ScriptedBroker) -> None:
        other = Owner(parts, "thief", SystemClock())
        seen = other.positions([TP])
        other.acquire(seen, {TP: Start(seen[TP].offset or 0)}, "id")

    return step


def test_a_run_until_caught_up_stages_everything_and_the_group_follows(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    script = broker(assign(TP, OTHER), give(batch(ROWS)))
    assert run(parts, script) == IngestResult(1, 2, 1, "caught up")
    assert places(parts) == {("id", 0, o): 1 for o in range(3)}
    assert script.did("commit") == [{TP: 0, OTHER: 0}, {TP: 3}]
    assert script.log[-1] == ("close", None)
    again = broker(assign(TP))
    assert run(parts, again) == IngestResult(0, 0, 0, "caught up")
    assert again.did("start") == [{TP: 3}]


def test_a_batch_that_fails_at_the_end_is_not_called_caught_up(tmp_path: Path) -> None:
    parts = consumer(tmp_path, batch={"max_records": 100}, invalid_records={"max_ratio": 0.5})
    good, bad = [b"{}"] * 100, [b"junk"] * 100
    with pytest.raises(InvalidLimit, match="100 of 100 records are invalid"):
        run(parts, broker(assign(TP), give(batch(good)), give(batch(bad, 100)), high=200))
    assert committed_positions(parts.staged, "c", "t", 2)[TP] == 100


def test_no_partitions_end_a_run_until_caught_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumers.processing.processor._ALONE_SECONDS", 0.05)
    assert run(consumer(tmp_path), broker(assign())).reason == "no partitions were assigned"


def test_a_stop_ends_the_run_and_commits_what_was_read(tmp_path: Path) -> None:
    parts, stop = consumer(tmp_path), threading.Event()
    script = broker(assign(TP), give(batch(ROWS)), lambda _: stop.set())
    assert run(parts, script, stop=stop).reason == "stopped"
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 3}


def test_a_stolen_partition_is_taken_back_and_read_again_from_the_table(tmp_path: Path) -> None:
    parts = consumer(tmp_path, **FAST)
    script = broker(assign(TP), steal(parts), give(batch(ROWS)), lambda b: _wait(b, ("seek", {TP: 0})), give(batch(ROWS)))
    assert run(parts, script).reason == "caught up"
    assert ("seek", {TP: 0}) in script.log
    assert places(parts) == {("id", 0, o): 1 for o in range(3)}


def _wait(script: ScriptedBroker, entry: tuple[str, object]) -> None:
    """Poll without records until the engine has done `entry`."""
    if entry not in script.log:
        script.steps.insert(0, lambda b: _wait(b, entry))


def test_a_partition_stolen_again_and_again_ends_the_run(tmp_path: Path) -> None:
    parts = consumer(tmp_path, **FAST)
    rounds: list[Step] = []
    for _ in range(3):
        rounds += [steal(parts), give(batch(ROWS))]
        rounds += [_until_sought(len(rounds) // 3)]
    with pytest.raises(FatalError, match="another process keeps writing the same partitions"):
        run(parts, broker(assign(TP), *rounds), seconds=20.0)
    assert places(parts) == {}


def _until_sought(before: int) -> Step:
    def step(script: ScriptedBroker) -> None:
        if len(script.did("seek")) < 2 * (before + 1):
            script.steps.insert(0, step)

    return step


def test_a_partition_that_cannot_be_taken_over_ends_the_run(tmp_path: Path) -> None:
    parts = consumer(tmp_path)

    class Raced(ScriptedBroker):
        def watermarks(self, partitions):  # type: ignore[no-untyped-def]
            steal(parts)(self)  # between the look at the table and the takeover
            return super().watermarks(partitions)

    with pytest.raises(FatalError, match="could not take t/0 over in 6 attempts"):
        run(parts, Raced([assign(TP)], {TP: Watermarks(0, 3)}))


def test_a_revoked_partition_is_committed_before_it_goes(tmp_path: Path) -> None:
    parts, stop = consumer(tmp_path), threading.Event()
    script = broker(assign(TP), give(batch(ROWS)), revoke(TP), lambda _: stop.set())
    assert run(parts, script, stop=stop).rows == 2
    assert script.did("commit") == [{TP: 0}, {TP: 3}]


def test_what_a_lost_partition_had_in_hand_is_forgotten_and_the_rest_is_read_again(tmp_path: Path) -> None:
    parts, stop = consumer(tmp_path), threading.Event()
    script = broker(assign(TP, OTHER), give(batch(ROWS)), lose(OTHER), give(batch(ROWS)), lambda _: stop.set())
    run(parts, script, stop=stop)
    assert ("seek", {TP: 0}) in script.log
    assert places(parts) == {("id", 0, o): 1 for o in range(3)}


def test_what_is_forgotten_is_not_in_flight_any_more(tmp_path: Path) -> None:
    stop, recorded = threading.Event(), Recorded()
    script = broker(assign(TP), give(batch(ROWS)), lose(TP), lambda _: stop.set())
    around = Surroundings(QuickClock(), recorded)
    stage_from(script, consumer(tmp_path), "m", stop, Limits(), lambda commit: None, around)
    gauged = [found.value for found in recorded.all if found.name == "in_flight_bytes"]
    assert gauged[0] > 0
    assert gauged[-1] == 0


def test_a_topic_that_was_recreated_is_begun_anew_also_where_another_partition_shows_it(tmp_path: Path) -> None:
    parts, stop = consumer(tmp_path, on_data_loss="record", **FAST), threading.Event()

    def recreate(script: ScriptedBroker) -> None:
        script.id = "new"

    script = broker(assign(TP), give(batch(ROWS)), lambda b: _wait(b, ("commit", {TP: 3})), recreate, assign(OTHER))
    script.steps += [give(batch(ROWS, 3)), lambda b: _wait(b, ("seek", {TP: 0, OTHER: 0}))]
    script.steps += [give(batch([b"{}"] * 3)), lambda _: stop.set()]
    run(parts, script, stop=stop)
    assert places(parts) == {("id", 0, 0): 1, ("id", 0, 1): 1, ("id", 0, 2): 1} | {("new", 0, o): 1 for o in range(3)}


def test_a_commit_under_way_while_it_is_discarded_leaves_no_dead_letter_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = consumer(tmp_path, **FAST)
    appended, forgotten = threading.Event(), threading.Event()
    append, commit = DeadLetterTable.append, StagedTable.commit

    def tell(self, *more):  # type: ignore[no-untyped-def]
        size = append(self, *more)
        appended.set()
        return size

    def late(self, *more):  # type: ignore[no-untyped-def]
        forgotten.wait(10)
        return commit(self, *more)

    monkeypatch.setattr(DeadLetterTable, "append", tell)
    monkeypatch.setattr(StagedTable, "commit", late)

    def lose_while_committing(script: ScriptedBroker) -> None:
        assert appended.wait(10)
        script.listener.lost(frozenset({OTHER}))
        forgotten.set()

    script = broker(assign(TP, OTHER), give(batch(ROWS)), lose_while_committing, give(batch(ROWS)))
    assert run(parts, script).reason == "caught up"
    assert places(parts) == {("id", 0, o): 1 for o in range(3)}


def test_lost_offsets_stop_the_run_unless_the_definition_records_them(tmp_path: Path) -> None:
    run(consumer(tmp_path), broker(assign(TP), give(batch(ROWS))))
    with pytest.raises(DataLoss, match="offsets 3 to 4"):
        run(consumer(tmp_path), broker(assign(TP), low=5, high=5))
    heard = []
    script = broker(assign(TP), low=5, high=5)
    parts = consumer(tmp_path, on_data_loss="record")
    stage_from(script, parts, "m", threading.Event(), Limits(True, 10), heard.append, Surroundings(QuickClock()))
    assert [str(tp) for commit in heard for tp in commit.lost] == ["t/0"]
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 5}


def test_a_broker_without_topic_ids_is_no_recreated_topic(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    run(parts, broker(assign(TP), give(batch(ROWS)), topic_id=""))
    for topic_id in ("id", "", "id"):
        script = broker(assign(TP), topic_id=topic_id)
        assert run(parts, script).reason == "caught up"
        assert script.did("start") == [{TP: 3}]
    with pytest.raises(DataLoss, match="deleted and created again"):
        run(parts, broker(assign(TP), topic_id="new"))


def test_a_full_stage_pauses_the_broker_and_resumes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumers.processing.strategies.stage.strategy._PATIENCE", 0.01)
    busy = threading.Event()
    commit = StagedTable.commit
    monkeypatch.setattr(StagedTable, "commit", lambda self, *more: (busy.wait(10), commit(self, *more))[1])
    parts = consumer(tmp_path, batch={"max_bytes": 1024, "max_records": 1})
    steps = [give(batch([b'{"a":1}' + b" " * 2000], at)) for at in range(3)]

    def free(script: ScriptedBroker) -> None:
        if script.did("pause"):
            busy.set()
        else:
            script.steps.insert(0, free)

    script = broker(assign(TP), *steps, free)
    assert run(parts, script).rows == 3
    assert script.did("pause")
    assert script.did("resume")
