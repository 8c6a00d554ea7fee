"""Questions and orders to a cluster that need no group membership, each with a timeout: topics, watermarks, group offsets."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from consumers.brokers.callbacks import ClientCallbacks
from consumers.brokers.failures import WHEN_AWAY, describe, known, passing
from consumers.brokers.options import KafkaOptions, unmade
from consumers.brokers.retry import Backoff, Retry
from consumers.clock import Clock, SystemClock
from consumers.errors import BrokerError
from consumers.metrics import Metrics, NoMetrics
from consumers.types import Positions, TopicPartition, Watermarks

_SETTLE_SECONDS = 20.0
_AWAY = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_HAS_MEMBERS = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH)
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class _NotYet(Exception):
    """The cluster has taken the order and is still about it."""

    def __str__(self) -> str:
        return "it is still about it"


class KafkaAdmin:
    """`BrokerAdmin` over confluent-kafka. Errors are `BrokerError`, with the address and what was asked.

    A question takes at most about `timeout` seconds; an order some more, until the cluster has settled.
    """

    def __init__(
        self,
        options: KafkaOptions,
        timeout: float = 5.0,
        clock: Clock | None = None,
        *,
        metrics: Metrics | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._metrics = metrics or NoMetrics()
        self._chance = chance or random.Random()
        self._options = options
        self._timeout = timeout
        self._callbacks = self._new_callbacks("admin")
        self._retry = self._new_retry(timeout)
        settings = {**self._quiet(self._callbacks), "socket.timeout.ms": int(timeout * 1000)}
        try:
            self._client = AdminClient(settings)
        except KafkaException as error:
            raise unmade(options, error) from None

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic, replicated as the cluster's default says. Returns once the leaders of all partitions answer."""
        made = NewTopic(topic, partitions, config=dict(config or {}))
        self._ask(f"make topic '{topic}'", lambda: self._client.create_topics([made], **self._long())[topic])
        self._settle(f"make topic '{topic}'", topic, partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic. Returns once the leaders of all partitions answer."""
        grown = NewPartitions(topic, total)
        self._ask(f"grow topic '{topic}'", lambda: self._client.create_partitions([grown], **self._long())[topic])
        self._settle(f"grow topic '{topic}'", topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Returns once no broker knows it any more."""
        self._ask(f"delete topic '{topic}'", lambda: self._client.delete_topics([topic], **self._long())[topic])
        everybody = [self, *self._each_broker()]

        def settled() -> None:
            if any(broker._seen(topic) for broker in everybody):
                raise _NotYet

        self._again(f"forget topic '{topic}'", settled, _SETTLE_SECONDS)

    def delete_records(self, before: Positions) -> None:
        """Drop the records before these offsets."""
        for tp, offset in before.items():
            gone = ck.TopicPartition(tp.topic, tp.partition, offset)
            what = f"delete the records of {tp} before offset {offset}"
            self._ask(what, lambda gone=gone: self._client.delete_records([gone], **self._long())[gone])  # type: ignore[misc]

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's own."""
        known = self._again("tell its topics", lambda: self._client.list_topics(timeout=self._timeout)).topics
        return sorted(name for name in known if not name.startswith("__"))

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        return len(self._describe(topic).partitions)

    def topic_id(self, topic: str) -> str:
        """The id that the cluster gave this incarnation of the topic; empty where the brokers know none."""
        found = str(self._describe(topic).topic_id)
        return "" if found == _NO_ID else found

    def topic_config(self, topic: str) -> dict[str, str]:
        """The settings that are in force for the topic, by Kafka's own names."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        asked = self._ask(
            f"tell the settings of topic '{topic}'",
            lambda: self._client.describe_configs([resource], request_timeout=self._timeout)[resource],
        )
        return {name: str(entry.value) for name, entry in asked.items()}

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        """The low and high watermark of every partition."""
        return self._marks([TopicPartition(topic, p) for p in range(self.partitions(topic))], ck.IsolationLevel.READ_UNCOMMITTED)

    def stable_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Low and high watermarks as a reader of committed transactions sees them: high is the last stable offset."""
        return self._marks(list(partitions), ck.IsolationLevel.READ_COMMITTED)

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[TopicPartition, int]:
        """Per partition, the first offset at or after a time, or the last stable offset where there is none."""
        every = [TopicPartition(topic, p) for p in range(self.partitions(topic))]
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._offsets(every, spec, ck.IsolationLevel.READ_COMMITTED)
        ends = self.stable_watermarks(tp for tp, offset in found.items() if offset < 0)
        return {tp: ends[tp].high if tp in ends else offset for tp, offset in found.items()}

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]:
        """What the group has committed, by partition; partitions without a commit are absent."""
        asked = [ck.TopicPartition(topic, partition) for partition in range(self.partitions(topic))]
        with self._outside(group) as client:
            answer = self._again(f"tell the offsets of group {group}", lambda: client.committed(asked, timeout=self._timeout))
        return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in answer if tp.offset >= 0}

    def set_group_offsets(self, group: str, positions: Positions) -> bool:
        """Commit these for a group without members. False, and nothing changed, where it has some."""
        asked = [ck.TopicPartition(tp.topic, tp.partition, offset) for tp, offset in sorted(positions.items())]

        def put(client: ck.Consumer) -> bool:
            try:
                answer = client.commit(offsets=asked, asynchronous=False)
            except KafkaException as error:
                inner = known(error)
                if inner is not None and inner.code() in _HAS_MEMBERS:
                    return False
                raise
            for tp in answer or ():
                if tp.error is not None:
                    raise KafkaException(tp.error)
            return True

        with self._outside(group) as client:
            return bool(self._again(f"set the offsets of group {group}", lambda: put(client)))

    @contextmanager
    def _outside(self, group: str) -> Iterator[ck.Consumer]:
        """A consumer that subscribes to nothing, which does not make it a member.

        Not the admin client's questions about groups: while the group's coordinator loads or moves, librdkafka 2.16 goes to a
        consumer that an admin client has not, and the process dies.
        """
        callbacks = self._quiet(self._new_callbacks("group offsets"))
        client = ck.Consumer({**callbacks, "group.id": group, "enable.auto.commit": False})
        try:
            yield client
        finally:
            client.close()

    def close(self) -> None:
        """Nothing more is asked: the client lets go of its connections when the last reference to it is gone."""
        self._callbacks.recovered()

    def _new_callbacks(self, client: str) -> ClientCallbacks:
        return ClientCallbacks(self._options, client, self._clock, self._metrics, self._chance)

    def _new_retry(self, seconds: float) -> Retry:
        return Retry(self._clock, self._chance, self._metrics, Backoff(limit=seconds))

    def _quiet(self, callbacks: ClientCallbacks) -> dict[str, Any]:
        """Nobody polls between questions, so statistics would only pile up."""
        return {**self._options.client(callbacks.settings()), "statistics.interval.ms": 0}

    def _long(self) -> dict[str, float]:
        return {"request_timeout": self._timeout, "operation_timeout": self._timeout}

    def _describe(self, topic: str) -> Any:
        try:
            return self._ask(f"tell topic '{topic}'", lambda: self._description(topic))
        except BrokerError as error:
            if not _is_unknown(error.__cause__):
                raise
            raise BrokerError(
                f"Kafka at {self._options.bootstrap_servers}: topic '{topic}' does not exist. Nothing was read or written. "
                "Create it, or mend the name."
            ) from error.__cause__

    def _description(self, topic: str) -> Any:
        return self._client.describe_topics(ck.TopicCollection([topic]), request_timeout=self._timeout)[topic]

    def _settle(self, order: str, topic: str, partitions: int) -> None:
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        every = {ck.TopicPartition(topic, p): spec for p in range(partitions)}
        # This client, too: the partitions that it knew are what it asks the leaders of.
        everybody = [self, *self._each_broker()]

        def settled() -> None:
            if any(broker._seen(topic) < partitions for broker in everybody):
                raise _NotYet
            try:
                for answer in self._client.list_offsets(every, request_timeout=self._timeout).values():
                    answer.result(self._timeout)
            except KafkaException as error:
                if _is_unknown(error):
                    raise _NotYet from error
                raise

        self._again(order, settled, _SETTLE_SECONDS)

    def _seen(self, topic: str) -> int:
        """How many partitions of a topic are known here by now."""
        try:
            return len(self._description(topic).result(self._timeout).partitions)
        except KafkaException as error:
            if _is_unknown(error):
                return 0
            raise

    def _each_broker(self) -> list["KafkaAdmin"]:
        """A client for each broker, that asks this one first: they learn of changes one after the other."""
        nodes = self._ask("tell its brokers", lambda: self._client.describe_cluster(request_timeout=self._timeout)).nodes
        addresses = [replace(self._options, bootstrap_servers=f"{node.host}:{node.port}") for node in nodes]
        return [KafkaAdmin(a, self._timeout, self._clock, metrics=self._metrics, chance=self._chance) for a in addresses]

    def _marks(self, every: list[TopicPartition], isolation: ck.IsolationLevel) -> dict[TopicPartition, Watermarks]:
        if not every:
            return {}
        low = self._offsets(every, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets(every, OffsetSpec.latest(), isolation)  # type: ignore[no-untyped-call]
        return {tp: Watermarks(low[tp], high[tp]) for tp in every}

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
                f"tell the offsets of {tp.topic}/{tp.partition}",
                lambda again=again, tp=tp: self._fresh(tp.topic).list_offsets(  # type: ignore[misc]
                    again, isolation_level=isolation, request_timeout=self._timeout
                )[tp],
                first,
            )
            found[TopicPartition(tp.topic, tp.partition)] = result.offset
        return found

    def _fresh(self, topic: str) -> AdminClient:
        """The client, after it has looked the topic up: of a partition that is new it otherwise finds no leader for minutes."""
        self._description(topic).result(self._timeout)
        return self._client

    def _ask(self, what: str, question: Callable[[], Any], asked: Any = None) -> Any:
        """The answer of a future; `asked` is the first one, where the question was put already."""
        waiting = [asked] if asked else []
        return self._again(what, lambda: (waiting.pop() if waiting else question()).result(timeout=self._timeout + 1))

    def _again(self, what: str, answer: Callable[[], Any], seconds: float | None = None) -> Any:
        """The answer, asked for again while the cluster says that it will know soon (a leader is being elected)."""
        retry = self._retry if seconds is None else self._new_retry(seconds)
        try:
            found = retry(what, answer, lambda error: passing(error) or isinstance(error, _NotYet))
        except (KafkaException, TimeoutError, _NotYet) as error:
            self._client.poll(0)
            why = self._options.without_secrets(describe(error)) + self._callbacks.said()
            inner = known(error)
            away = inner is None or inner.code() in _AWAY
            advice = f". What is committed is safe. {WHEN_AWAY}." if away else ""
            raise BrokerError(f"Kafka at {self._options.bootstrap_servers} did not {what}: {why}{advice}") from error
        self._client.poll(0)
        self._callbacks.recovered()
        return found


def _is_unknown(error: BaseException | None) -> bool:
    inner = known(error) if error is not None else None
    return inner is not None and inner.code() in _UNKNOWN
