"""A contestant: only `Consumer.consume`, with the client settings that all have, and the records thrown away."""

import confluent_kafka as ck

from benchmarks.peers.task import Answer, Task
from consumers.processing.subscription import POLL_RECORDS


def run(task: Task) -> Answer:
    """Until all records were in hand."""
    answer = Answer(records=task.records)
    consumer = ck.Consumer({**task.client, "group.id": task.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([task.topic])
    seen = 0
    while seen < task.records:
        # No more than there are: for a batch that never fills it would wait.
        messages = consumer.consume(min(POLL_RECORDS, task.records - seen), 1.0)
        if messages:
            answer.begin()
        seen += sum(1 for message in messages if message.error() is None)
    answer.end()
    consumer.close()
    return answer


if __name__ == "__main__":
    run(Task.given()).print()
