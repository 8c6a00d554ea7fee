"""`Filter`: some rows go on, the offsets of all do."""

import functools

import pyarrow as pa

from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message, Strategy
from consumers.processing.strategies.step import DEFAULT, Step
from consumers.processing.strategies.task import Function, Partial, call


class Filter(Step[pa.RecordBatch, pa.RecordBatch]):
    """Keeps the rows of a record batch (or table) for which `predicate` gives true.

    `predicate` makes a boolean array, as long as the payload, of the payload; null counts as false. `each_kept` makes one from a
    function per record. A message of which nothing is left is passed on empty, so that its offsets advance.
    """

    def __init__(
        self,
        predicate: Function[pa.RecordBatch, pa.BooleanArray],
        next_step: Strategy[pa.RecordBatch],
        *,
        around: Surroundings = DEFAULT,
    ) -> None:
        super().__init__(next_step, around)
        self._kept = _rows_kept(predicate)

    def _take(self, message: Message[pa.RecordBatch]) -> None:
        self._send(call(self._kept, message, self._around))


def _rows_kept(predicate: Function[pa.RecordBatch, pa.BooleanArray]) -> Function[pa.RecordBatch, pa.RecordBatch]:
    @functools.wraps(predicate)
    def kept(payload: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return payload.filter(predicate(payload))
        except Partial as made:
            raise Partial(payload.filter(made.value), made.records) from made

    return kept
