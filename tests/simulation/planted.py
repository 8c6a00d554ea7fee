"""Defects that somebody might really write, to plant into the engine, the sinks and the broker. The simulation must find each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from consumers.brokers.memory.group import Group
from consumers.brokers.memory.log import PartitionLog
from consumers.brokers.memory.transactional import MemoryTransactionalProducer
from consumers.database import positions as sql_positions
from consumers.database.positions import SqlPositions
from consumers.processing.processor import Processor
from consumers.processing.progress import Progress
from consumers.processing.strategies import sql_transactions, unfold
from consumers.processing.strategies.dead_letters import TopicSink
from consumers.processing.strategies.produce import Sent
from consumers.processing.strategies.protocol import MessageRejected
from consumers.processing.strategies.sql_transactions import SqlTransactions
from tests.simulation.schedule import Pipeline


class Plant(NamedTuple):
    """A defect: what it is called, the pipeline that suffers, and which attributes are replaced by what."""

    name: str
    pipeline: Pipeline
    changes: tuple[tuple[Any, str, Any], ...]


def _positions_first(self: SqlTransactions[Any], connection: Any, messages: Any, ranges: Any) -> None:
    self._admit(connection, messages, ranges)
    connection.connection.dbapi_connection.commit()
    advance, SqlPositions.advance = SqlPositions.advance, lambda self, connection, ranges: None  # type: ignore[method-assign]
    try:
        _FILL(self, connection, messages, ranges)
    finally:
        SqlPositions.advance = advance  # type: ignore[method-assign]


_FILL = SqlTransactions._fill
_POLL = Processor._poll


def _any_row(consumer: str, tp: Any, offset: int, epoch: int) -> Any:
    return sql_positions.update(sql_positions.POSITIONS).where(sql_positions._row(consumer, tp))


def _drops_what_is_refused(self: Processor) -> None:
    while self._held and self._strategy is not None:
        batch = self._held.popleft()
        try:
            self._strategy.submit(_message(batch))
        except MessageRejected:
            continue


def _message(batch: Any) -> Any:
    from consumers.processing.strategies.protocol import Message

    return Message(batch.records, batch.ranges, (batch.records,))


def _any_order(self: Progress, tp: Any, step: Any) -> bool:
    return tp in self.safe and step.end > self.safe[tp]


def _commits_what_is_read(self: Processor) -> None:
    _POLL(self)
    self._broker.commit(self._progress.read)


def _forgets_without_discard(self: Processor, leaving: Any = frozenset()) -> None:
    self._held.clear()
    self._progress.forget()
    self._broker.seek({tp: offset for tp, offset in self._progress.safe.items() if tp not in leaving})


def _forgets_without_seek(self: Processor, leaving: Any = frozenset()) -> None:
    if self._strategy is not None:
        self._strategy.discard()
    self._held.clear()
    self._progress.forget()


def _reads_all(self: PartitionLog, position: int, limit: int, committed: bool = True) -> Any:
    return _READ(self, position, limit, False)


_READ = PartitionLog.read


def _nothing(*args: Any, **more: Any) -> None:
    return None


def _always(*args: Any, **more: Any) -> bool:
    return True


def _thrown_away(self: TopicSink, letters: Any) -> Callable[[], bool]:
    return _always


def _not_waited_for(self: TopicSink, letters: Any) -> Callable[[], bool]:
    _SUBMIT(self, letters)
    return _always


_SUBMIT = TopicSink.submit


def _parts_that_look_whole(made: Any, payloads: Any) -> Any:
    return [replace(part, more=False) for part in _BEFORE(made, payloads)]


_BEFORE = unfold._before

PLANTS = [
    Plant("positions are committed before the rows", "database", ((SqlTransactions, "_fill", _positions_first),)),
    Plant("positions move whoever holds them", "database", ((sql_positions, "_at", _any_row),)),
    Plant("dead letters are not written", "database", ((sql_transactions, "write_dead_letters", _nothing),)),
    Plant("what is refused is skipped", "database", ((Processor, "_offer", _drops_what_is_refused),)),
    Plant(
        "what is refused is skipped and nobody looks",
        "chain",
        ((Processor, "_offer", _drops_what_is_refused), (Progress, "_moves", _any_order)),
    ),
    Plant("a lost batch is not forgotten", "database", ((Processor, "_forget_unsafe", _forgets_without_discard),)),
    Plant("partitions that stay are not sought back", "chain", ((Processor, "_forget_unsafe", _forgets_without_seek),)),
    Plant("nothing is finished on revoke", "chain", ((Processor, "_drain", _nothing),)),
    Plant("the group is told what was only read", "database", ((Processor, "_poll", _commits_what_is_read),)),
    Plant("the group is told what was only read", "chain", ((Processor, "_poll", _commits_what_is_read),)),
    Plant("losses are not recorded", "database", ((SqlPositions, "_record_loss", _nothing),)),
    Plant("acknowledgements are not waited for", "chain", ((Sent, "done", True), (Sent, "require_delivered", _nothing))),
    Plant("dead letters are thrown away", "chain", ((TopicSink, "submit", _thrown_away),)),
    Plant("dead letters are not waited for", "chain", ((TopicSink, "submit", _not_waited_for),)),
    Plant("the group fences nobody", "transactions", ((Group, "knows", _always),)),
    Plant("offsets are no part of the transaction", "transactions", ((MemoryTransactionalProducer, "send_offsets", _nothing),)),
    Plant("a transaction ends between parts", "transactions", ((unfold, "_before", _parts_that_look_whole),)),
    Plant("a transaction ends between parts", "database", ((unfold, "_before", _parts_that_look_whole),)),
    Plant("aborted records are read", "transactions", ((PartitionLog, "read", _reads_all),)),
]
