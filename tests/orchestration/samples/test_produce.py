"""Producing sample records: no faster than asked for."""

import pytest

from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.clock import ManualClock
from orchestration.local.errors import LocalError
from orchestration.samples import produce
from orchestration.samples.records import Record

NOBODY = KafkaOptions("127.0.0.1:1")


class Recorder(KafkaProducer):
    """Keeps the time at which each record was sent; nothing leaves it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(NOBODY)
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
