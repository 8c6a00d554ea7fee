"""A publisher that is killed at a step: `python -m tests.integration.publishing_child BOOTSTRAP TABLE TOPIC STEP MOMENT`."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from consumers.brokers.options import KafkaOptions
from consumers.brokers.transactions import KafkaTransactionalProducer
from orchestration.feed.publish import publish_table
from tests.orchestration.feed.tables import feed


def main() -> None:
    """Send, and die `before` or `after` the first call of a method of the producer."""
    bootstrap_servers, table, topic, step, moment = sys.argv[1:]
    original = getattr(KafkaTransactionalProducer, step)

    def last(*arguments: Any, **named: Any) -> None:
        if moment == "after":
            original(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(KafkaTransactionalProducer, step, last)
    publish_table(Path(table), feed(topic), KafkaOptions(bootstrap_servers))


if __name__ == "__main__":
    main()
