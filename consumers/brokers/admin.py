"""Questions to a cluster that need no group membership: watermarks, group offsets, a topic's id. Every call has a timeout."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import confluent_kafka as ck
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from consumers.brokers.options import KafkaOptions
from consumers.clock import Clock, SystemClock
from consumers.errors import BrokerError
from consumers.types import TopicPartition, Watermarks

_AGAIN_SECONDS = 0.1
_ELECTING = (
    ck.KafkaError.NOT_LEADER_FOR_PARTITION,
    ck.KafkaError.LEADER_NOT_AVAILABLE,
    ck.KafkaError.REPLICA_NOT_AVAILABLE,
    ck.KafkaError.UNKNOWN_LEADER_EPOCH,
    ck.KafkaError.FENCED_LEADER_EPOCH,
    ck.KafkaError.OFFSET_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.NOT_COORDINATOR,
)
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class KafkaAdmin:
    """An admin client. Errors are `BrokerError`, with the address and what was asked."""

    def __init__(self, options: KafkaOptions, timeout: float = 5.0, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._options = options
        self._address = options.bootstrap_servers
        self._timeout = timeout
        self._client = AdminClient({**options.client(), "socket.timeout.ms": int(timeout * 1000)})

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        return len(self._describe(topic).partitions)

    def topic_id(self, topic: str) -> str:
        """The id that the cluster gave this incarnation of the topic; empty where the brokers know none."""
        found = str(self._describe(topic).topic_id)
        return "" if found == _NO_ID else found

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        """The low and high watermark of every partition."""
        every = [TopicPartition(topic, p) for p in range(self.partitions(topic))]
        low = self._offsets(every, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets(every, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {tp: Watermarks(low[tp], high[tp]) for tp in every}

    def stable_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Low and high watermarks as a reader of committed transactions sees them: high is the last stable offset."""
        every = list(partitions)
        if not every:
            return {}
        low = self._offsets(every, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets(every, OffsetSpec.latest(), ck.IsolationLevel.READ_COMMITTED)  # type: ignore[no-untyped-call]
        return {tp: Watermarks(low[tp], high[tp]) for tp in every}

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]:
        """What the group has committed, by partition; partitions without a commit are absent."""
        asked = [ck.TopicPartition(topic, partition) for partition in range(self.partitions(topic))]
        # Not `list_consumer_group_offsets`: while the group's coordinator loads or moves, librdkafka 2.16 goes to a consumer that
        # an admin client has not, and the process dies. A consumer that subscribes to nothing does not become a member.
        reader = ck.Consumer({**self._options.client(), "group.id": group, "enable.auto.commit": False})
        try:
            answer = self._again(f"the offsets of group {group}", lambda: reader.committed(asked, timeout=self._timeout))
        finally:
            reader.close()
        return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in answer if tp.offset >= 0}

    def _describe(self, topic: str) -> Any:
        names = ck.TopicCollection([topic])
        return self._ask(f"topic '{topic}'", lambda: self._client.describe_topics(names, request_timeout=self._timeout)[topic])

    def _offsets(
        self,
        partitions: list[TopicPartition],
        spec: OffsetSpec,
        isolation: ck.IsolationLevel = ck.IsolationLevel.READ_UNCOMMITTED,
    ) -> Mapping[TopicPartition, int]:
        asked = {ck.TopicPartition(tp.topic, tp.partition): spec for tp in partitions}
        futures = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout)
        found = {}
        for tp, first in futures.items():
            again = {tp: spec}
            result = self._ask(
                f"the offsets of {tp.topic}/{tp.partition}",
                lambda again=again, tp=tp: self._client.list_offsets(  # type: ignore[misc]
                    again, isolation_level=isolation, request_timeout=self._timeout
                )[tp],
                first,
            )
            found[TopicPartition(tp.topic, tp.partition)] = result.offset
        return found

    def _ask(self, what: str, question: Callable[[], Any], asked: Any = None) -> Any:
        """The answer of a future; `asked` is the first one, where the question was put already."""
        waiting = [asked] if asked else []
        return self._again(what, lambda: (waiting.pop() if waiting else question()).result(timeout=self._timeout + 1))

    def _again(self, what: str, answer: Callable[[], Any]) -> Any:
        """The answer, asked for again while the cluster says that it will know soon (a leader is being elected)."""
        deadline = self._clock.monotonic() + self._timeout
        while True:
            try:
                return answer()
            except (KafkaException, TimeoutError) as error:
                if not passing(error) or self._clock.monotonic() > deadline:
                    raise BrokerError(f"Kafka at {self._address} did not tell {what}: {describe(error)}") from error
            self._clock.sleep(_AGAIN_SECONDS)


def passing(error: Exception) -> bool:
    """Whether the cluster will know soon: a leader is being elected, or a new topic has not reached every broker."""
    known = error.args[0] if error.args else None
    return isinstance(known, ck.KafkaError) and known.code() in _ELECTING


def describe(error: BaseException) -> str:
    """A client error in words."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], ck.KafkaError):
        known: ck.KafkaError = error.args[0]
        return f"{known.str()} ({known.name()})"
    return str(error) or type(error).__name__
