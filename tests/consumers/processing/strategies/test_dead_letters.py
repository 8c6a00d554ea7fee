"""Dead letters: exact, durable before a message passes, in order, bounded; and in a topic."""

from dataclasses import replace

import pyarrow as pa
import pytest

from consumers.brokers.protocol import Receipt
from consumers.config import InvalidLimits
from consumers.errors import BrokerError, FatalError, InvalidLimit
from consumers.monitoring.recorded import Recorded
from consumers.processing.strategies.dead_letters import Durable, TopicSink
from consumers.processing.strategies.protocol import Message, MessageRejected, Rejection
from consumers.types import OffsetRange
from tests.consumers.parts import DAY_MS
from tests.consumers.processing.strategies.letters import TP, Next, made, message

SAME = [("weir-topic", b"t"), ("weir-partition", b"0")]


class Slow:
    """A sink whose letters are durable when the test says so."""

    def __init__(self) -> None:
        self.letters: list[pa.RecordBatch] = []
        self.durable = 0
        self.answers = True

    def submit(self, letters: pa.RecordBatch) -> Durable:
        self.letters.append(letters)
        number = len(self.letters)
        return lambda: self.durable >= number

    def poll(self) -> None:
        pass

    def flush(self, timeout: float) -> bool:
        if self.answers:
            self.durable = len(self.letters)
        return self.answers

    def discard(self) -> None:
        self.letters = []

    def close(self) -> None:
        self.discard()


class Producer:
    """Keeps what is sent; the test acknowledges."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, pa.RecordBatch, Receipt]] = []

    def send_batch(self, topic: str, records: pa.RecordBatch) -> Receipt:
        receipt = Receipt(records.num_rows, [])
        self.sent.append((topic, records, receipt))
        return receipt

    def poll(self, timeout: float = 0.0) -> None:
        pass

    def flush(self, timeout: float) -> int:
        for _, _, receipt in self.sent:
            receipt.waiting = 0
        return 0


def test_a_message_without_rejections_goes_straight_on() -> None:
    after = Next()
    made(Slow(), after).submit(message(0, [b"a"]))
    assert after.payloads == ["from 0"]


def test_messages_wait_in_order_behind_a_dead_letter_that_is_not_durable() -> None:
    after, sink = Next(), Slow()
    step = made(sink, after)
    step.submit(message(0, [b"a", b"x"], [1]))
    step.submit(message(2, [b"b"]))
    step.submit(message(3, [b"y"], [3]))
    step.poll()
    assert after.taken == []
    sink.durable = 1
    step.poll()
    assert after.payloads == ["from 0", "from 2"]
    assert after.taken[0].rejected == ()
    assert after.taken[0].ranges == {TP: OffsetRange(0, 2)}
    sink.durable = 2
    step.poll()
    assert after.payloads == ["from 0", "from 2", "from 3"]


def test_letters_hold_exactly_the_rejected_records_with_the_first_reason() -> None:
    sink = Slow()
    twice = message(5, [b"\xff\x00", None, b"c"], [6, 5])
    twice = twice.with_payload(twice.payload, (Rejection(TP, 5, "again"),))
    made(sink, Next()).submit(twice)
    [letters] = sink.letters
    rows = letters.to_pylist()
    assert [(r["topic"], r["partition"], r["offset"], r["key"], r["value"], r["reason"]) for r in rows] == [
        ("t", 0, 5, b"k0", b"\xff\x00", "bad 5"),
        ("t", 0, 6, b"k1", None, "bad 6"),
    ]


def test_a_rejection_of_a_record_that_the_message_does_not_have_is_fatal() -> None:
    after = Next()
    with pytest.raises(FatalError, match="offset 9 was rejected"):
        made(Slow(), after).submit(message(0, [b"a", b"b"], [1, 9]))
    assert after.taken == []


def test_a_full_next_step_is_backpressure_and_nothing_is_lost() -> None:
    after = Next()
    after.room = 1
    step = made(Slow(), after)
    step.submit(message(0, [b"a"]))
    step.submit(message(1, [b"b"]))
    with pytest.raises(MessageRejected):
        step.submit(message(2, [b"c"]))
    after.room = 3
    step.poll()
    step.submit(message(2, [b"c"]))
    assert after.payloads == ["from 0", "from 1", "from 2"]


def test_what_waits_for_a_slow_sink_is_bounded_by_backpressure() -> None:
    sink, after = Slow(), Next()
    first = message(0, [b"x"], [0])
    step = made(sink, after, room_bytes=first.nbytes + 1)
    step.submit(first)
    step.submit(message(1, [b"b"]))
    with pytest.raises(MessageRejected):
        step.submit(message(2, [b"c"]))
    sink.durable = 1
    step.poll()
    step.submit(message(2, [b"c"]))
    assert after.payloads == ["from 0", "from 1", "from 2"]


def test_a_flush_writes_and_hands_on_everything_also_past_a_full_next_step() -> None:
    sink, after = Slow(), Next()
    step = made(sink, after)
    after.room = 1
    step.submit(message(0, [b"x"], [0]))
    step.submit(message(1, [b"y"], [1]))
    assert step.flush(10)
    assert after.payloads == ["from 0", "from 1"]
    assert after.calls[-1] == "flush"


def test_a_flush_that_the_sink_does_not_finish_says_so() -> None:
    sink, after = Slow(), Next()
    sink.answers = False
    step = made(sink, after)
    step.submit(message(0, [b"x"], [0]))
    assert not step.flush(1)
    assert after.taken == []


def test_what_was_discarded_is_not_handed_on() -> None:
    sink, after = Slow(), Next()
    step = made(sink, after)
    step.submit(message(0, [b"x"], [0]))
    step.discard()
    sink.durable = 1
    step.poll()
    assert after.taken == []
    step.submit(message(0, [b"x"], [0]))
    step.poll()
    assert after.payloads == ["from 0"]
    step.close()
    step.close()
    assert after.calls == ["discard", "discard", "close"]


def test_dead_letters_are_counted_when_they_are_durable() -> None:
    sink, metrics = Slow(), Recorded()
    step = made(sink, Next(), metrics=metrics)
    step.submit(message(0, [b"x", b"a", b"y"], [0, 2]))
    assert metrics.total("dead_letters") == 0
    sink.durable = 1
    step.poll()
    assert metrics.total("dead_letters") == 2


def test_a_share_above_the_limit_stops_before_anything_of_the_message_is_written() -> None:
    sink, after = Slow(), Next()
    step = made(sink, after, InvalidLimits(max_ratio=0.1))
    step.submit(message(0, [b"a"] * 60, range(6)))
    with pytest.raises(InvalidLimit, match="12 of 110 records"):
        step.submit(message(60, [b"a"] * 50, range(60, 66)))
    assert len(sink.letters) == 1
    assert after.taken == []


def test_a_run_across_messages_stops_and_one_read_again_after_a_discard_does_not_count_twice() -> None:
    step = made(Slow(), Next(), InvalidLimits(max_consecutive=3))
    step.submit(message(0, [b"a", b"x", b"x"], [1, 2]))
    step.discard()
    step.submit(message(0, [b"a", b"x", b"x"], [1, 2]))
    step.submit(message(3, [b"x"], [3]))
    with pytest.raises(InvalidLimit, match="4 invalid records in a row"):
        step.submit(message(4, [b"x"], [4]))


def parts(*whole: Message[str]) -> list[Message[str]]:
    """The same records several times, as `Unfold` makes them: the offsets pass with the last."""
    *early, last = whole
    nothing = {TP: OffsetRange(last.ranges[TP].start, last.ranges[TP].start)}
    return [replace(part, source=last.source, ranges=nothing, more=True) for part in early] + [last]


@pytest.mark.parametrize(
    ("limits", "what"),
    [(InvalidLimits(max_ratio=0.1), "100 of 100 records"), (InvalidLimits(max_consecutive=60), "100 invalid records in a row")],
)
def test_several_messages_of_the_same_records_are_judged_as_one(limits: InvalidLimits, what: str) -> None:
    values, after = [b"x"] * 100, Next()
    step = made(Slow(), after, limits)
    early, last = parts(message(0, values, range(50)), message(0, values, range(50, 100)))
    step.submit(early)
    with pytest.raises(InvalidLimit, match=what):
        step.submit(last)
    assert after.taken == []


def test_a_record_that_several_messages_reject_is_one_dead_letter() -> None:
    sink, after = Slow(), Next()
    step = made(sink, after)
    for part in parts(message(0, [b"a", b"x"], [1]), message(0, [b"a", b"x"], [1])):
        step.submit(part)
    assert step.flush(1.0)
    assert [letters.num_rows for letters in sink.letters] == [1]
    assert [(taken.rejected, taken.more) for taken in after.taken] == [((), True), ((), False)]


def test_records_that_several_messages_share_take_room_once() -> None:
    values = [b"x" * 100] * 10
    whole = message(0, values, [0])
    step = made(Slow(), Next(), room_bytes=whole.nbytes + 1)
    for part in parts(*[message(0, values, [i]) for i in range(10)]):
        step.submit(part)
    step.submit(message(10, values))
    with pytest.raises(MessageRejected):
        step.submit(message(20, values))


def test_bytes_of_waiting_letters_above_the_limit_stop() -> None:
    sink = Slow()
    step = made(sink, Next(), InvalidLimits(max_bytes=10_000))
    step.submit(message(0, [b"x" * 6000], [0]))
    sink.durable = 1
    step.poll()
    step.submit(message(1, [b"x" * 6000], [1]))
    with pytest.raises(InvalidLimit, match="bytes of invalid records"):
        step.submit(message(2, [b"x" * 6000], [2]))


def test_a_topic_keeps_bytes_and_headers_and_says_where_a_letter_came_from() -> None:
    producer = Producer()
    own = [{"key": "trace", "value": b"\x01"}, {"key": "empty", "value": None}]
    step = made(TopicSink(producer, "dead"), after := Next())  # type: ignore[arg-type]
    step.submit(message(7, [b"\xfe", None], [7, 8], headers=[own, None], stamps=[DAY_MS + 1, None]))
    [(topic, sent, receipt)] = producer.sent
    first, second = sent.to_pylist()
    assert (topic, first["key"], first["value"], second["value"]) == ("dead", b"k0", b"\xfe", None)
    assert [(h["key"], h["value"]) for h in first["headers"]] == [
        ("trace", b"\x01"),
        ("empty", None),
        ("weir-reason", b"bad 7"),
        *SAME,
        ("weir-offset", b"7"),
        ("weir-timestamp", str(DAY_MS + 1).encode()),
    ]
    assert [h["key"] for h in second["headers"]] == ["weir-reason", "weir-topic", "weir-partition", "weir-offset"]
    assert "timestamp" not in sent.schema.names
    receipt.waiting = 1
    step.poll()
    assert after.taken == []
    receipt.waiting = 0
    step.poll()
    assert after.payloads == ["from 7"]


def test_a_letter_that_a_topic_does_not_take_is_fatal_and_the_message_stays() -> None:
    producer, after = Producer(), Next()
    step = made(TopicSink(producer, "dead"), after)  # type: ignore[arg-type]
    step.submit(message(7, [b"x", b"y"], [7, 8]))
    producer.sent[0][2].waiting = 0
    producer.sent[0][2].failed.append((1, "message too large"))
    with pytest.raises(BrokerError, match=r"t/0 at offset 8 could not be written to topic dead: message too large"):
        step.poll()
    assert after.taken == []
