"""A contestant: Weir, one member of the group that the task names; others may be members beside it."""

import threading
import uuid
from collections.abc import Callable

from benchmarks.peers.task import Answer, Task
from benchmarks.topic import VARIANTS
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.config import Consumer
from consumers.membership import GroupSettings
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.processor import Limits
from consumers.types import RecordBatch

_MEMBERSHIP = GroupSettings(heartbeat_seconds=0.3)
"""Members that start together share the partitions at once, rather than at a heartbeat three seconds later."""


class _Timed(KafkaGroupMember):
    """Notes when the first records came."""

    begin: Callable[[], None]

    def poll(self, max_records: int, timeout: float) -> RecordBatch | None:
        """As the group member does."""
        batch = super().poll(max_records, timeout)
        if batch is not None:
            self.begin()
        return batch


def run(task: Task) -> Answer:
    """Until the partitions that are this member's are committed to typed, checked Delta."""
    answer = Answer(table=str(task.table))
    consumer = Consumer(
        name="bench",
        config=VARIANTS[task.variant].definition.model_copy(update={"only_topic": task.topic}),
        staged=task.table,
        dead_letters=task.folder / "dead_letters",
    )
    broker = _Timed(KafkaOptions(task.bootstrap_servers), task.topic, task.group, "bench", settings=_MEMBERSHIP)
    broker.begin = answer.begin
    result = stage_from(
        broker,
        consumer,
        f"bench-{uuid.uuid4()}",
        threading.Event(),
        Limits(until_caught_up=True),
        lambda _commit: answer.end(),
        Surroundings(),
    )
    answer.records = result.rows + result.dead_letters
    return answer


if __name__ == "__main__":
    run(Task.given()).print()
