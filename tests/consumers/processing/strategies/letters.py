"""What the tests of dead letters share: messages with rejections, a next step, and the strategy in between."""

from collections.abc import Sequence
from typing import Any

from consumers.clock import ManualClock
from consumers.config import InvalidLimits
from consumers.metrics import Metrics
from consumers.processing.context import Surroundings
from consumers.processing.strategies.dead_letters import DeadLetters, DeadLetterSink
from consumers.processing.strategies.protocol import Message, MessageRejected, Rejection
from consumers.types import OffsetRange, TopicPartition
from tests.consumers.parts import records

TP = TopicPartition("t", 0)


def message(start: int, values: Sequence[bytes | None], bad: Sequence[int] = (), **more: Any) -> Message[str]:
    """Records of partition 0 from offset `start` on, of which those at the offsets `bad` are rejected."""
    source = records(values, start, **more)
    rejected = tuple(Rejection(TP, offset, f"bad {offset}") for offset in bad)
    return Message(f"from {start}", {TP: OffsetRange(start, start + len(values))}, (source,), rejected)


class Next:
    """The step after: takes what it has room for."""

    def __init__(self) -> None:
        self.taken: list[Message[str]] = []
        self.calls: list[str] = []
        self.room = 100

    @property
    def payloads(self) -> list[str]:
        return [message.payload for message in self.taken]

    def submit(self, message: Message[str]) -> None:
        if len(self.taken) >= self.room:
            raise MessageRejected
        self.taken.append(message)

    def poll(self) -> None:
        pass

    def flush(self, timeout: float) -> bool:
        self.calls.append("flush")
        self.room = 100
        return True

    def discard(self) -> None:
        self.calls.append("discard")

    def close(self) -> None:
        self.calls.append("close")


def made(
    sink: DeadLetterSink, next_step: Next, limits: InvalidLimits | None = None, metrics: Metrics | None = None, **more: Any
) -> DeadLetters[str]:
    around: Any = {} if metrics is None else {"metrics": metrics}
    return DeadLetters(sink, limits or InvalidLimits(), next_step, around=Surroundings(ManualClock(), **around), **more)
