"""Bring a sample topic from where it is to where it should be, so that commands can be run again."""

import threading
from collections.abc import Callable

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from orchestration.local.errors import LocalError
from orchestration.samples import produce
from orchestration.samples.records import malformed_rows
from orchestration.samples.sources import SEED
from orchestration.samples.topics import create_topics


def present(topic: str, bootstrap_servers: str) -> int:
    """How many records of a sample topic are there; the topic is made when it is missing."""
    create_topics(bootstrap_servers, [produce.sample(topic)])
    marks = KafkaAdmin(KafkaOptions(bootstrap_servers)).watermarks(topic)
    return sum(mark.high for mark in marks.values())


def expected(topic: str, *, malformed: float = 0.0, limit: int | None = None) -> produce.Produced:
    """What the topic holds once it is complete."""
    count = len(produce.sample(topic).frame(SEED)[:limit])
    return produce.Produced(topic, count, int(malformed_rows(count, malformed, SEED).sum()), failed=0)


def complete(
    topic: str,
    bootstrap_servers: str,
    *,
    malformed: float = 0.0,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> produce.Produced:
    """Have all of a sample topic's records there, once. Raises LocalError when the topic holds something else."""
    there = present(topic, bootstrap_servers)
    whole = expected(topic, malformed=malformed, limit=limit)
    if there == 0:
        return produce.produce(topic, bootstrap_servers, malformed=malformed, limit=limit, progress=progress)
    if there < whole.records and not malformed:
        for done in produce.replay(bootstrap_servers, rate=None, topic=topic, start=there, limit=limit):
            progress(there + done, whole.records)
    elif there != whole.records:
        raise LocalError(
            f"topic {topic} holds {there:,} records, the sample has {whole.records:,}: it was written by something else. "
            "Nothing was changed. `weir demo --fresh` starts this home anew; WEIR_HOME names another place"
        )
    return whole


def replay_from_end(topic: str, bootstrap_servers: str, rate: float, stop: threading.Event) -> None:
    """Go on writing a sample topic's records where the topic ends, `rate` a second, until told to stop or through."""
    replaying = produce.replay(bootstrap_servers, rate=rate, topic=topic, start=present(topic, bootstrap_servers))
    for _ in replaying:
        if stop.is_set():
            replaying.close()
            return
