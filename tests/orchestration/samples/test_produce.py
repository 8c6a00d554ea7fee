"""Producing: the rate, and what happens when the cluster is not there."""

import pytest

from consumers.brokers.producer import IdempotentProducer, UndeliveredError
from consumers.clock import ManualClock
from orchestration.local.errors import LocalError
from orchestration.samples import produce
from orchestration.samples.records import Record

NOBODY = "127.0.0.1:1"


class Recorder(IdempotentProducer):
    """Keeps the time at which each record was sent; nothing leaves it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(NOBODY, {"log_level": 0})
        self.clock = clock
        self.sent: list[float] = []

    def send(self, *_arguments: object, **_more: object) -> None:
        self.sent.append(self.clock.monotonic())


@pytest.mark.parametrize("rate", [3.0, 50.0, 4_000.0])
def test_no_record_is_sent_before_its_turn_and_the_last_is_on_time(rate: float) -> None:
    clock = ManualClock(100.0)
    recorder = Recorder(clock)
    rows = [Record(b"k", b"{}", 0)] * 1000
    assert list(produce._send(recorder, "t", rows, rate, clock))[-1] == 1000
    slack = 0.11 * rate + 1  # a tenth of a second is sent at once
    assert all(number <= (time - 100.0) * rate + slack for number, time in enumerate(recorder.sent))
    assert clock.monotonic() - 100.0 == pytest.approx(1000 / rate)


def test_a_rate_of_nothing_is_refused() -> None:
    clock = ManualClock()
    with pytest.raises(LocalError, match="above 0"):
        list(produce._send(Recorder(clock), "t", [], 0.0, clock))


def test_what_cannot_be_delivered_is_counted_and_raised() -> None:
    producer = IdempotentProducer(NOBODY, {"log_level": 0})
    for _ in range(3):
        producer.send("t", b"x")
    with pytest.raises(UndeliveredError, match="3 of 3 records were not delivered") as raised:
        producer.close(timeout=0.2)
    assert (raised.value.report.delivered, raised.value.report.failed) == (0, 3)
    assert raised.value.report.errors


def test_a_record_that_kafka_would_never_take_is_counted_with_its_reason() -> None:
    producer = IdempotentProducer(NOBODY, {"log_level": 0, "delivery.timeout.ms": 50, "linger.ms": 1})
    producer.send("t", b"x")
    with pytest.raises(UndeliveredError, match="timed out"):
        producer.close(timeout=30)


def test_a_full_queue_slows_the_sender_and_loses_nothing() -> None:
    options = {"log_level": 0, "queue.buffering.max.messages": 10, "delivery.timeout.ms": 100, "linger.ms": 1}
    producer = IdempotentProducer(NOBODY, options)
    for _ in range(15):
        producer.send("t", b"x")
    with pytest.raises(UndeliveredError, match="15 of 15"):
        producer.close(timeout=30)


def test_an_exception_in_the_block_is_not_hidden_by_what_it_left_undelivered() -> None:
    with pytest.raises(ZeroDivisionError), IdempotentProducer(NOBODY, {"log_level": 0}) as producer:
        producer.send("t", b"x")
        raise ZeroDivisionError
    assert producer.failed == 1
