"""A broker's consumer that follows a script: each poll does the next thing, and the end of the script is silence."""

from collections.abc import Callable, Mapping, Sequence

from consumers.brokers.protocol import Partitions, RebalanceListener
from consumers.types import Positions, RecordBatch, TopicPartition, Watermarks

Step = Callable[["ScriptedBroker"], RecordBatch | None]


class ScriptedBroker:
    """One topic `t`. `log` holds what the engine did, in order."""

    def __init__(self, steps: Sequence[Step], marks: Mapping[TopicPartition, Watermarks], topic_id: str = "id") -> None:
        self.steps = list(steps)
        self.marks = dict(marks)
        self.id = topic_id
        self.log: list[tuple[str, object]] = []
        self.listener: RebalanceListener

    def subscribe(self, listener: RebalanceListener) -> None:
        self.listener = listener

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        return self.steps.pop(0)(self) if self.steps else None

    def seek(self, positions: Positions) -> None:
        self.log.append(("seek", dict(positions)))

    def pause(self) -> None:
        self.log.append(("pause", None))

    def resume(self) -> None:
        self.log.append(("resume", None))

    def commit(self, positions: Positions, wait: bool = False) -> None:
        self.log.append(("commit", dict(positions)))

    def watermarks(self, partitions: Partitions) -> Mapping[TopicPartition, Watermarks]:
        return {tp: self.marks[tp] for tp in partitions}

    def high_watermarks(self, partitions: Partitions) -> Mapping[TopicPartition, int]:
        return {tp: self.marks[tp].high for tp in partitions}

    def group_offsets(self, partitions: Partitions) -> Positions:
        return {}

    def offsets_at(self, partitions: Partitions, timestamp_ms: int) -> Positions:
        return {tp: self.marks[tp].low for tp in partitions}

    def partitions(self) -> Partitions:
        return frozenset(self.marks)

    def topic_id(self) -> str:
        return self.id

    def close(self) -> None:
        self.log.append(("close", None))

    def did(self, what: str) -> list[object]:
        return [argument for name, argument in self.log if name == what]


def assign(*partitions: TopicPartition) -> Step:
    def step(broker: ScriptedBroker) -> None:
        broker.log.append(("start", dict(broker.listener.assigned(frozenset(partitions)))))

    return step


def revoke(*partitions: TopicPartition) -> Step:
    return lambda broker: broker.listener.revoked(frozenset(partitions))


def lose(*partitions: TopicPartition) -> Step:
    return lambda broker: broker.listener.lost(frozenset(partitions))


def give(batch: RecordBatch) -> Step:
    return lambda broker: batch
