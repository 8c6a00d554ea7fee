"""What becomes of what a user's function returns or raises."""

import functools
import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

from consumers.clock import ManualClock
from consumers.errors import InvalidRecord, InvalidRecords, InvalidValue, TaskFailed
from consumers.metrics import Histogram, NoMetrics, Tags
from consumers.processing.context import Surroundings
from consumers.processing.strategies import task
from consumers.processing.strategies.each import each
from consumers.processing.strategies.protocol import Message, Rejection
from consumers.processing.strategies.task import Made, Partial, attempt, call, name_of
from consumers.types import OffsetRange, Ranges, TopicPartition
from tests.consumers.parts import TP, message, records

RANGES: Ranges = {TP: OffsetRange(5, 15)}


def offsets(payload: pa.RecordBatch) -> list[int]:
    listed: list[int] = payload["offset"].to_pylist()
    return listed


def without_odd(payload: pa.RecordBatch) -> list[int]:
    """Names invalid records one by one."""
    for offset in offsets(payload):
        if offset % 2:
            raise InvalidRecord(0, offset, "odd")
    return offsets(payload)


def test_a_record_that_is_called_invalid_is_rejected_and_the_function_sees_the_others() -> None:
    made = attempt(without_odd, records([b"v"] * 4, first=5), RANGES)
    assert made == Made([6, 8], (Rejection(TP, 5, "odd"), Rejection(TP, 7, "odd")))


def test_several_records_can_be_called_invalid_at_once() -> None:
    calls = []

    def once(payload: pa.RecordBatch) -> list[int]:
        calls.append(payload.num_rows)
        if payload.num_rows == 4:
            raise InvalidRecords(InvalidRecord(0, offset, "bad") for offset in (5, 8))
        return offsets(payload)

    assert attempt(once, records([b"v"] * 4, first=5), RANGES).value == [6, 7]
    assert calls == [4, 2]


def partial_of(*records: InvalidRecord) -> Callable[[object], object]:
    """A function that makes `value` without these records."""

    def made_without(_: object) -> object:
        raise Partial("value", records)

    return made_without


def test_a_function_may_give_a_value_beside_invalid_records() -> None:
    made = attempt(partial_of(InvalidRecord(0, 9, "why")), ["any", "payload"], RANGES)
    assert made == Made("value", (Rejection(TP, 9, "why"),))


def test_a_record_that_is_named_twice_is_rejected_once() -> None:
    twice = partial_of(InvalidRecord(0, 9, "first"), InvalidRecord(0, 9, "second"))
    assert attempt(twice, 0, RANGES).rejected == (Rejection(TP, 9, "first"),)


def test_invalid_records_are_taken_from_tables_too() -> None:
    table = pa.Table.from_batches([records([b"v"] * 2, first=5), records([b"v"] * 2, first=7)])
    assert attempt(without_odd, table, RANGES).value == [6, 8]


def test_with_two_topics_the_offset_tells_whose_record_is_invalid() -> None:
    other = TopicPartition("u", 0)
    ranges = {TP: OffsetRange(5, 6), other: OffsetRange(7, 8)}
    assert attempt(partial_of(InvalidRecord(0, 7, "why")), 0, ranges).rejected == (Rejection(other, 7, "why"),)


def test_any_other_error_names_function_topic_partition_offsets_and_cause() -> None:
    def broken(payload: object) -> None:
        raise KeyError("amount")

    with pytest.raises(TaskFailed) as raised:
        attempt(broken, records([b"v"]), {TP: OffsetRange(5, 15), TopicPartition("t", 1): OffsetRange(0, 2)})
    text = str(raised.value)
    for part in ("broken", "test_task.py:", "topic t, partitions and offsets 0 [5, 15), 1 [0, 2)", "KeyError: 'amount'"):
        assert part in text
    assert isinstance(raised.value.__cause__, KeyError)


def test_an_error_that_ends_in_a_full_stop_does_not_get_a_second_one() -> None:
    def broken(_payload: pa.RecordBatch) -> None:
        raise LookupError("No such name.")

    with pytest.raises(TaskFailed, match=r"No such name\. Nothing"):
        attempt(broken, records([b"v"]), RANGES)


def test_an_error_that_a_library_raises_names_the_line_that_called_it() -> None:
    def misspelt(payload: pa.RecordBatch) -> pa.Array:
        return payload["vlaue"]

    with pytest.raises(TaskFailed, match=r"failed at test_task\.py:\d+ on"):
        attempt(misspelt, records([b"v"]), RANGES)


@pytest.mark.parametrize(
    ("invalid", "payload", "why"),
    [
        (InvalidRecord(0, 99, "x"), records([b"v"], first=5), "does not have"),
        (InvalidRecord(0, 5, "x"), [1, 2], "raise Partial"),
        (InvalidRecord(0, 5, "x"), pa.record_batch({"a": [1]}), "columns partition and offset"),
        (InvalidValue("x"), records([b"v"], first=5), "InvalidValue: x"),
    ],
)
def test_a_record_that_cannot_be_taken_out_ends_the_run(invalid: Exception, payload: object, why: str) -> None:
    def reject(_: object) -> None:
        raise invalid

    with pytest.raises(TaskFailed, match=why):
        attempt(reject, payload, RANGES)


@pytest.mark.parametrize("record", [InvalidRecord(0, 15, "past"), InvalidRecord(3, 5, "elsewhere")])
def test_a_rejection_of_a_record_outside_of_the_message_ends_the_run(record: InvalidRecord) -> None:
    with pytest.raises(TaskFailed, match="not of this batch"):
        attempt(partial_of(record), 0, RANGES)


def test_a_function_that_names_records_one_by_one_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "MOST_CALLS", 3)
    with pytest.raises(TaskFailed, match="named invalid records 3 times"):
        attempt(without_odd, records([b"v"] * 8, first=5), RANGES)
    assert attempt(without_odd, records([b"v"] * 4, first=5), RANGES).value == [6, 8]


def test_earlier_rejections_stay_and_offsets_and_source_too() -> None:
    given = message([b"v"] * 4)
    earlier = Rejection(TP, 0, "earlier")
    made = call(without_odd, given.with_payload(given.payload, (earlier,)), Surroundings())
    assert made == Message([0, 2], given.ranges, given.source, (earlier, Rejection(TP, 1, "odd"), Rejection(TP, 3, "odd")))


def test_the_time_of_a_call_is_measured_under_the_functions_name() -> None:
    clock, seen = ManualClock(), []

    class Recording(NoMetrics):
        def observe(self, name: Histogram, value: float, tags: Tags | None = None) -> None:
            seen.append((name, value, tags))

    call(lambda payload: clock.advance(2.5), message([b"v"]), Surroundings(clock, Recording()))
    ((name, value, tags),) = seen
    assert (name, value) == ("task_seconds", 2.5)
    assert "the_functions_name" in (tags or {})["function"]


def test_what_crosses_to_another_process_survives_it() -> None:
    crossing = [
        InvalidRecord(1, 2, "why"),
        InvalidRecords([InvalidRecord(1, 2, "why")]),
        TaskFailed("what"),
        Made([1], (Rejection(TP, 5, "x"),)),
    ]
    for value in crossing:
        assert repr(pickle.loads(pickle.dumps(value))) == repr(value)


def test_functions_are_called_by_their_names() -> None:
    assert name_of(without_odd).endswith("test_task.without_odd")
    assert name_of(functools.partial(without_odd)) == name_of(without_odd)
    assert name_of(each(without_odd)) == name_of(without_odd)
    assert name_of(Made(1)).endswith("task.Made")
