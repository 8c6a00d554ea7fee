"""`Reduce`: payloads become one value."""

from collections.abc import Callable
from typing import TypeVar

from consumers.processing.context import Surroundings
from consumers.processing.strategies.buffer import Buffer, UpTo
from consumers.processing.strategies.protocol import Strategy
from consumers.processing.strategies.step import DEFAULT

T = TypeVar("T")
U = TypeVar("U")


class Reduce(Buffer[T, U, U]):
    """Folds payloads: `accumulator(value, payload)` gives the new value, `initial()` the first; passed on when `size` says so.

    `accumulator` must not change the value that it is given: a payload with invalid records is offered to it again without them.
    """

    def __init__(
        self,
        accumulator: Callable[[U, T], U],
        initial: Callable[[], U],
        size: UpTo,
        next_step: Strategy[U],
        *,
        around: Surroundings = DEFAULT,
    ) -> None:
        super().__init__(accumulator, initial, _itself, size, next_step, around=around)


def _itself(value: U) -> U:
    return value
