"""`RunTask`: a function of each payload, called in the polling thread."""

from typing import TypeVar

from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message, Strategy
from consumers.processing.strategies.step import DEFAULT, Step
from consumers.processing.strategies.task import Function, call

T = TypeVar("T")
U = TypeVar("U")


class RunTask(Step[T, U]):
    """Passes on what a function makes of each payload; see `task.Function` for what it may do and raise.

    A function per record is made one per payload by `each`. It is called once for a message, also when the next step is full for
    a while; again only when the message is submitted again (after a rebalance or a restart), so effects happen at least once.
    While it runs nothing is polled: what takes longer than a second or so belongs into threads or processes.
    """

    def __init__(self, function: Function[T, U], next_step: Strategy[U], *, around: Surroundings = DEFAULT) -> None:
        super().__init__(next_step, around)
        self._function = function

    def _take(self, message: Message[T]) -> None:
        self._send(call(self._function, message, self._around))
