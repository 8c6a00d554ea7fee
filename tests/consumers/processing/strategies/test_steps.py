"""What each of the small strategies does of its own; what all have in common is in tests/contracts."""

import math
from typing import Any

import pyarrow as pa
import pytest

from consumers.clock import ManualClock
from consumers.errors import FatalError, InvalidRecord, TaskFailed
from consumers.processing.context import Surroundings
from consumers.processing.strategies.batch import Batch
from consumers.processing.strategies.buffer import UpTo
from consumers.processing.strategies.commit_positions import IMMEDIATELY, CommitPolicy, CommitPositions
from consumers.processing.strategies.each import each
from consumers.processing.strategies.filter import Filter
from consumers.processing.strategies.healthcheck import Healthcheck
from consumers.processing.strategies.protocol import Message, Rejection
from consumers.processing.strategies.reduce import Reduce
from consumers.processing.strategies.run_task import RunTask
from consumers.processing.strategies.unfold import Unfold
from consumers.types import OffsetRange, Ranges, TopicPartition
from tests.consumers.parts import TP, message, records
from tests.contracts.driver import Next

FOREVER = UpTo(seconds=math.inf)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def around(clock: ManualClock) -> Surroundings:
    return Surroundings(clock)


def passed(after: Next) -> list[object]:
    """The payloads that the next step has, as Python's own."""
    after.poll()
    return [m.payload.to_pydict()["offset"] if hasattr(m.payload, "to_pydict") else m.payload for m in after.done]


def test_a_task_is_not_called_again_when_the_next_step_is_full_for_a_while(around: Surroundings) -> None:
    after, calls = Next(), []
    step: RunTask[pa.RecordBatch, None] = RunTask(lambda payload: calls.append(payload.num_rows), after, around=around)
    after.full = True
    step.submit(message([b"a"]))
    step.poll()
    after.full = False
    step.poll()
    assert passed(after) == [None]
    assert calls == [1]


def test_a_filter_takes_null_for_false(around: Surroundings) -> None:
    after = Next()
    Filter(lambda payload: pa.array([True, None, False]), after, around=around).submit(message([b"a"] * 3))
    assert passed(after) == [[0]]


def test_a_failing_predicate_is_named(around: Surroundings) -> None:
    def is_large(payload: pa.RecordBatch) -> pa.BooleanArray:
        raise KeyError("size")

    with pytest.raises(TaskFailed, match="is_large failed"):
        Filter(is_large, Next(), around=around).submit(message([b"a"]))


def test_offsets_pass_with_the_last_part_of_an_unfolded_message(around: Surroundings) -> None:
    after = Next()
    Unfold(lambda payload: ["a", "b", "c"], "", after, around=around).submit(message([b"x"] * 4, first=6))
    assert passed(after) == ["a", "b", "c"]
    assert [m.ranges[TP] for m in after.done] == [OffsetRange(6, 6), OffsetRange(6, 6), OffsetRange(6, 10)]


def test_unfolding_waits_in_the_middle_of_the_sequence(around: Surroundings) -> None:
    class Narrow(Next):
        def submit(self, message: Message[object]) -> None:
            super().submit(message)
            self.full = True

    after = Narrow()
    step: Unfold[pa.RecordBatch, str] = Unfold(lambda payload: ["a", "b", "c"], "", after, around=around)
    step.submit(message([b"x"]))
    for expected in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert passed(after) == expected
        after.full = False
        step.poll()


def test_a_message_that_unfolds_to_nothing_passes_its_offsets_with_the_empty_payload(around: Surroundings) -> None:
    after = Next()
    Unfold(lambda payload: [], "empty", after, around=around).submit(message([b"x"] * 4))
    assert passed(after) == ["empty"]
    assert after.committed == {TP: OffsetRange(0, 4)}


def test_every_part_carries_the_source_so_that_it_can_still_be_rejected(around: Surroundings) -> None:
    after, given = Next(), message([b"x"] * 4)
    Unfold(lambda payload: [1, 2], 0, after, around=around).submit(given)
    passed(after)
    assert [m.source for m in after.done] == [given.source, given.source]


def test_a_record_rejected_in_an_early_part_is_known_by_its_partition(around: Surroundings) -> None:
    after = Next()

    def halves(payload: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [payload.slice(0, 1), payload.slice(1)]

    def reject_first(payload: pa.RecordBatch) -> pa.RecordBatch:
        if payload.num_rows and payload["offset"][0].as_py() == 0:
            raise InvalidRecord(0, 0, "first")
        return payload

    Unfold(halves, records([]), RunTask(reject_first, after, around=around), around=around).submit(message([b"x"] * 2))
    assert passed(after) == [[], [1]]
    assert after.done[0].rejected == (Rejection(TP, 0, "first"),)


def test_a_batch_is_full_by_rows(around: Surroundings) -> None:
    after = Next()
    step = Batch(UpTo(records=4, seconds=math.inf), after, around=around)
    for first in (0, 3, 6):
        step.submit(message([b"x"] * 3, first=first))
    assert passed(after) == [[0, 1, 2, 3, 4, 5]]


def test_a_batch_is_full_by_bytes_of_the_source_where_little_is_left_of_it(around: Surroundings) -> None:
    after, large = Next(), message([b"x" * 1000])
    step = Filter(
        lambda payload: pa.array([False] * payload.num_rows), Batch(UpTo(bytes=2000), after, around=around), around=around
    )
    step.submit(large)
    assert passed(after) == []
    step.submit(message([b"x" * 1000], first=1))
    assert passed(after) == [[]]


def test_a_batch_is_full_some_time_after_its_first_message(around: Surroundings, clock: ManualClock) -> None:
    after = Next()
    step = Batch(UpTo(seconds=5), after, around=around)
    step.submit(message([b"x"]))
    clock.advance(4)
    step.submit(message([b"x"], first=1))
    assert passed(after) == []
    clock.advance(1)
    step.poll()
    assert passed(after) == [[0, 1]]


def test_a_batch_of_tables_is_a_table(around: Surroundings) -> None:
    after = Next()
    step = Batch(FOREVER, after, around=around)
    for first in (0, 1):
        given = message([b"x"], first=first)
        step.submit(given.with_payload(pa.Table.from_batches([given.payload])))
    assert step.flush(0)
    assert isinstance(after.done[0].payload, pa.Table)
    assert passed(after) == [[0, 1]]


def test_batches_of_different_schemas_end_the_run_with_their_offsets(around: Surroundings) -> None:
    step = Batch(FOREVER, Next(), around=around)
    step.submit(message([b"x"]))
    step.submit(message([b"x"], first=1).with_payload(pa.record_batch({"a": [1]})))
    with pytest.raises(TaskFailed, match=r"0 \[0, 2\).*schema"):
        step.flush(0)


def test_parts_that_share_their_source_carry_it_once(around: Surroundings) -> None:
    after = Next()
    Unfold(lambda payload: [payload, payload], records([]), Batch(UpTo(records=4), after, around=around), around=around).submit(
        message([b"x"] * 2)
    )
    assert passed(after) == [[0, 1, 0, 1]]
    assert len(after.done[0].source) == 1


def test_reducing_folds_payloads_into_one_value(around: Surroundings) -> None:
    after = Next()

    def add(total: int, payload: pa.RecordBatch) -> int:
        return total + int(payload.num_rows)

    step = Reduce(add, lambda: 100, UpTo(records=5), after, around=around)
    for first in (0, 3):
        step.submit(message([b"x"] * 3, first=first))
    assert passed(after) == [106]
    assert after.committed == {TP: OffsetRange(0, 6)}


def test_a_value_that_is_no_collection_counts_as_one_record(around: Surroundings) -> None:
    after = Next()
    counted: Reduce[list[int], int] = Reduce(lambda total, rows: total + sum(rows), int, UpTo(records=3), after, around=around)
    RunTask(each(lambda record: record.offset), counted, around=around).submit(message([b"x"] * 3))
    assert passed(after) == [3]


def test_positions_are_committed_when_the_policy_says_so(clock: ManualClock) -> None:
    commits: list[Ranges] = []
    step: CommitPositions[object] = CommitPositions(commits.append, CommitPolicy(seconds=5, offsets=4), clock)
    step.submit(message([b"x"] * 3))
    assert not commits
    step.submit(message([b"x"], first=3))
    assert commits == [{TP: OffsetRange(0, 4)}]
    step.submit(message([b"x"], first=4))
    clock.advance(5)
    step.poll()
    assert commits[1:] == [{TP: OffsetRange(4, 5)}]


def test_time_counts_from_the_first_message_that_is_not_committed(clock: ManualClock) -> None:
    commits: list[Ranges] = []
    step: CommitPositions[object] = CommitPositions(commits.append, CommitPolicy(seconds=5), clock)
    clock.advance(100)
    step.submit(message([b"x"]))
    assert not commits


def test_messages_that_pass_no_offset_commit_nothing() -> None:
    commits: list[Ranges] = []
    step: CommitPositions[object] = CommitPositions(commits.append, IMMEDIATELY)
    step.submit(Message(None, {TP: OffsetRange(3, 3)}))
    assert not commits
    step.submit(Message(None, {TP: OffsetRange(3, 4), TopicPartition("t", 1): OffsetRange(0, 0)}))
    assert commits[0][TP] == OffsetRange(3, 4)


def test_rejections_that_nobody_keeps_are_not_committed() -> None:
    commits: list[Ranges] = []
    given = message([b"x"] * 2)
    with pytest.raises(FatalError, match=r"t/0 offset 1: why.*Put DeadLetters before CommitPositions"):
        ended: CommitPositions[object] = CommitPositions(commits.append, IMMEDIATELY)
        ended.submit(given.with_payload(None, (Rejection(TP, 1, "why"),)))
    assert not commits


def test_a_heart_beats_whenever_it_is_polled(clock: ManualClock) -> None:
    beats: list[float] = []
    step: Healthcheck[object] = Healthcheck(lambda: beats.append(clock.time()), Next())
    assert not beats
    step.poll()
    clock.advance(0.9)
    step.poll()
    assert beats == [0.0, 0.9]


@pytest.mark.parametrize("nothing", [print, CommitPositions, None])
def test_a_next_step_that_is_none_is_refused_when_the_chain_is_made(nothing: Any) -> None:
    with pytest.raises(TypeError, match="RunTask: the next step is no strategy"):
        RunTask(lambda payload: payload, nothing)
