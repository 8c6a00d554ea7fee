"""`Unfold`: one message becomes several."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message, Strategy
from consumers.processing.strategies.step import DEFAULT, Step
from consumers.processing.strategies.task import Function, call
from consumers.types import OffsetRange

T = TypeVar("T")
U = TypeVar("U")


class Unfold(Step[T, U]):
    """Passes on every payload of the sequence that a function makes of one, in order.

    The offsets pass with the last: a crash in the middle repeats the whole sequence. The messages before it stand at the first
    offset, pass none and say that there is `more`, so that no transaction ends between them; all carry the source, so that later
    steps can reject records of any of them. Where the function makes nothing, `empty` is the payload of the message that passes
    the offsets on, such as a table without rows.
    """

    def __init__(
        self, function: Function[T, Sequence[U]], empty: U, next_step: Strategy[U], *, around: Surroundings = DEFAULT
    ) -> None:
        super().__init__(next_step, around)
        self._function = function
        self._empty = empty

    def _take(self, message: Message[T]) -> None:
        made = call(self._function, message, self._around)
        *first, last = made.payload or (self._empty,)
        self._send(*_before(made, first), made.with_payload(last))


def _before(made: Message[Sequence[U]], payloads: Iterable[U]) -> Iterable[Message[U]]:
    nothing = {tp: OffsetRange(step.start, step.start) for tp, step in made.ranges.items()}
    here = replace(made, ranges=nothing, rejected=(), more=True)
    return [here.with_payload(payload) for payload in payloads]
