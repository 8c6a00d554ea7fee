"""Makes the sample topics, with settings that keep records as old as 2013."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from consumers.clock import Clock, SystemClock
from orchestration.local.errors import LocalError
from orchestration.samples.records import SAMPLES, Sample

_CALL_SECONDS = 10.0
_DELETE_SECONDS = 60.0
_POLL_SECONDS = 0.1

# Kafka deletes by the record's own time: with any other retention these would vanish within minutes. It also
# starts a new file for each week of record time unless told otherwise.
CONFIG = {"retention.ms": "-1", "segment.ms": str(10 * 366 * 86_400_000)}


def create_topics(
    bootstrap_servers: str,
    topics: Iterable[Sample] = tuple(SAMPLES.values()),
    *,
    recreate: bool = False,
    clock: Clock | None = None,
) -> tuple[str, ...]:
    """Have these topics; the names of those made now. With `recreate`, those there are deleted first, with
    all records.

    Raises LocalError when the cluster does not answer or refuses.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})  # what fails is raised
    try:
        known = admin.list_topics(timeout=_CALL_SECONDS)
        wanted = [topic for topic in topics if recreate or topic.topic not in known.topics]
        if recreate:
            _delete(
                admin,
                [topic.topic for topic in wanted if topic.topic in known.topics],
                clock or SystemClock(),
            )
        replicas = min(3, len(known.brokers))
        new = [
            NewTopic(topic.topic, num_partitions=topic.partitions, replication_factor=replicas, config=CONFIG) for topic in wanted
        ]
        return tuple(_create(admin, new)) if new else ()
    except KafkaException as error:
        raise LocalError(f"cannot make topics at {bootstrap_servers}: {_words(error)}; see `weir kafka status`") from error


def _create(admin: AdminClient, new: list[NewTopic]) -> list[str]:
    made = []
    for name, done in admin.create_topics(new, operation_timeout=_CALL_SECONDS).items():
        try:
            done.result()
            made.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # somebody was quicker
                raise
    return made


def _delete(admin: AdminClient, names: list[str], clock: Clock) -> None:
    if not names:
        return
    for done in admin.delete_topics(names, operation_timeout=_CALL_SECONDS).values():
        done.result()
    deadline = clock.monotonic() + _DELETE_SECONDS
    while set(names) & set(admin.list_topics(timeout=_CALL_SECONDS).topics):
        if clock.monotonic() > deadline:
            raise LocalError(f"{', '.join(names)} still there {_DELETE_SECONDS:.0f} s after being deleted: try again")
        clock.sleep(_POLL_SECONDS)


def _words(error: KafkaException) -> str:
    cause = error.args[0]
    return str(cause.str()) if isinstance(cause, KafkaError) else str(cause)
