"""The stage thread: its failures reach the poller, what is discarded is not committed, and it always ends."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.errors import OwnershipLost, StorageError
from consumers.processing.context import Context, Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.starts import Start
from consumers.processing.strategies.protocol import Message
from consumers.processing.strategies.stage import strategy as module
from consumers.processing.strategies.stage.owner import Hold, Owner
from consumers.processing.strategies.stage.strategy import Stage
from consumers.processing.strategies.stage.writer import TableWriter
from consumers.staging.log import StagedCommit
from consumers.staging.positions import committed_positions
from consumers.types import OffsetRange
from tests.consumers.parts import TP, consumer, message, offsets

SAME = Incarnation(lambda: "id", SystemClock())
ROWS = [b'{"a":0}', b"bad", b'{"a":2}']


@pytest.fixture
def parts(tmp_path: Path):  # type: ignore[no-untyped-def]
    return consumer(tmp_path, batch={"max_latency_seconds": 60})


@pytest.fixture
def owner(parts) -> Owner:  # type: ignore[no-untyped-def]
    made = Owner(parts, "m", SystemClock())
    made.acquire(made.positions([TP]), {TP: Start(0)}, "id")
    return made


@pytest.fixture
def told() -> list[StagedCommit]:
    return []


def staging(parts: Consumer, owner: Owner, told: list[StagedCommit], incarnation: Incarnation = SAME) -> Stage:
    context = Context(lambda ranges: None, Surroundings())
    return Stage(parts, owner, context, incarnation, lambda partitions: {TP: 9}, told.append)


@pytest.fixture
def stage(parts, owner: Owner, told: list[StagedCommit]) -> Iterator[Stage]:  # type: ignore[no-untyped-def]
    made = staging(parts, owner, told)
    yield made
    made.close()


def test_a_flush_commits_everything_submitted_before_it_and_tells(stage: Stage, told: list[StagedCommit]) -> None:
    stage.submit(message(ROWS))
    stage.submit(message(ROWS, 3))
    assert stage.flush(10)
    [commit] = told
    assert (commit.rows, commit.dead_letters, commit.lag, commit.ranges[TP].end) == (4, 2, 3, 6)


def test_what_was_discarded_is_not_committed(stage: Stage, parts, told: list[StagedCommit]) -> None:  # type: ignore[no-untyped-def]
    stage.submit(message(ROWS))
    stage.discard()
    assert stage.flush(10)
    assert told == []
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 0}


def unfolded(whole: Message[pa.RecordBatch]) -> list[Message[pa.RecordBatch]]:
    """One message a row, as `Unfold` makes them."""
    early = replace(whole, ranges={TP: OffsetRange(0, 0)}, more=True)
    rows = [whole.payload.slice(i, 1) for i in range(whole.payload.num_rows)]
    return [early.with_payload(row) for row in rows[:-1]] + [whole.with_payload(rows[-1])]


def test_no_commit_ends_between_messages_that_were_made_of_the_same_records(
    tmp_path: Path,
    owner: Owner,
    told: list[StagedCommit],
) -> None:
    small = staging(consumer(tmp_path, batch={"max_records": 2, "max_latency_seconds": 0.01}), owner, told)
    *early, last = unfolded(message([b'{"a":0}'] * 4))
    try:
        for part in early:
            small.submit(part)
            assert not small.flush(0.05)
        assert told == []
        assert offsets(tmp_path / "staged") == {}
        small.submit(last)
        assert small.flush(10)
        assert [commit.rows for commit in told] == [4]
    finally:
        small.close()


def test_a_batch_of_a_partition_that_was_let_go_is_not_committed(stage: Stage, owner: Owner, told: list[StagedCommit]) -> None:
    stage.submit(message(ROWS))
    owner.release(frozenset({TP}))
    with pytest.raises(OwnershipLost, match="t/0: this member does not hold"):
        stage.flush(10)
    assert told == []


def test_a_batch_discarded_while_it_is_decoded_is_not_committed(
    stage: Stage,
    parts,
    owner: Owner,
    told: list[StagedCommit],
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    decoding, let_go = threading.Event(), threading.Event()
    shape = module.shape

    def slow(*arguments):  # type: ignore[no-untyped-def]
        decoding.set()
        let_go.wait(10)
        return shape(*arguments)

    monkeypatch.setattr(module, "shape", slow)
    monkeypatch.setattr(Stage, "_time_left", lambda self: 0.0)  # full at once
    stage.submit(message(ROWS))
    assert decoding.wait(10)
    stage.discard()
    owner.release(frozenset({TP}))
    let_go.set()
    assert stage.flush(10)
    assert told == []
    assert offsets(parts.staged) + offsets(parts.dead_letters) == {}


@pytest.mark.parametrize(
    ("failure", "seen"), [(OSError("disk full"), StorageError), (DeltaError("no log"), StorageError), (KeyError("x"), KeyError)]
)
def test_a_failure_in_the_thread_reaches_the_poller(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, failure: Exception, seen: type[Exception]
) -> None:
    def fail(self, *more):  # type: ignore[no-untyped-def]
        raise failure

    monkeypatch.setattr(TableWriter, "write", fail)
    stage.submit(message(ROWS))
    for ask in (lambda: stage.flush(10), stage.poll, lambda: stage.submit(message(ROWS, 3))):
        with pytest.raises(seen):
            ask()


def test_a_lost_ownership_is_raised_until_it_is_discarded(
    stage: Stage, owner: Owner, told: list[StagedCommit], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.submit(message(ROWS))
    assert stage.flush(10)
    held = owner.holds
    monkeypatch.setattr(owner, "_holds", {TP: Hold(99, "id")})
    stage.submit(message(ROWS, 3))
    with pytest.raises(OwnershipLost):
        stage.flush(10)
    with pytest.raises(OwnershipLost):
        stage.poll()
    stage.discard()
    monkeypatch.setattr(owner, "_holds", held)
    stage.submit(message(ROWS, 3))
    assert stage.flush(10)
    assert [commit.rows for commit in told] == [2, 2]


def test_what_was_committed_before_a_failure_is_told_before_it_is_raised(
    stage: Stage, told: list[StagedCommit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stage, "_time_left", lambda self: 0.0)  # full at once
    stage.submit(message(ROWS))
    stage.submit(message(ROWS, 7))
    with pytest.raises(OwnershipLost):
        stage.flush(10)
    assert [commit.rows for commit in told] == [2]


def test_a_flush_that_takes_too_long_says_so_and_closing_waits_for_its_commit(
    stage: Stage,
    parts,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    writing, let_go = threading.Event(), threading.Event()
    write = TableWriter.write

    def slow(self, *more):  # type: ignore[no-untyped-def]
        writing.set()
        let_go.wait(10)
        return write(self, *more)

    monkeypatch.setattr(TableWriter, "write", slow)
    stage.submit(message(ROWS))
    assert not stage.flush(0.01)
    assert writing.wait(10)
    let_go.set()
    stage.close()
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 3}


def test_the_age_of_the_first_record_commits_by_itself(parts, owner: Owner, told: list[StagedCommit]) -> None:  # type: ignore[no-untyped-def]
    quick = consumer(parts.staged.parent, batch={"max_latency_seconds": 0.01})
    made = staging(quick, owner, told)
    made.submit(message(ROWS))
    deadline = SystemClock().monotonic() + 10
    while not told and SystemClock().monotonic() < deadline:
        made.poll()
    made.close()
    assert [commit.rows for commit in told] == [2]


def test_records_read_from_a_topic_that_was_recreated_meanwhile_are_not_committed(parts, owner: Owner) -> None:  # type: ignore[no-untyped-def]
    made = staging(parts, owner, [], Incarnation(lambda: "another", SystemClock()))
    try:
        made.submit(message(ROWS))
        with pytest.raises(OwnershipLost, match="deleted and created again"):
            made.flush(10)
    finally:
        made.close()
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 0}
    assert not offsets(parts.dead_letters)
