"""Sends one version of a table in one transaction: its changes, and the version as a group's offset. Knows no Dagster.

The transaction is begun before anything is read. From then on no older producer with the same transactional id can commit, so the
group's offset stands; and whatever this one leaves open, the next one ends.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from consumers.brokers.protocol import BrokerConsumer, Delivery, TransactionalProducer
from consumers.clock import Clock
from consumers.errors import BrokerError, ConfigError, OwnershipLost
from consumers.types import OffsetRange, TopicPartition
from orchestration.feed.changes import SameKey, changed, gone
from orchestration.feed.config import Feed
from orchestration.feed.rows import Shape
from orchestration.feed.versions import Snapshot, Span, between

VERSION_HEADER = "weir-version"


@dataclass(frozen=True)
class Told:
    """A version that is known to have been sent: by which group, to which incarnation of the topic."""

    version: int
    group: str
    topic_id: str


@dataclass(frozen=True)
class Sent:
    """What went to the topic: all changes after the version `since` (None: there was none) up to `version`.

    `group` holds the version, for the topic's incarnation `topic_id`. `rows` are upserts, `tombstones` keys that are gone;
    `offsets` has, per partition, from the first record to the last. `whole` says why all rows were sent, where they were.
    """

    version: int
    since: int | None
    group: str
    topic_id: str
    rows: int = 0
    tombstones: int = 0
    whole: str = ""
    offsets: dict[int, OffsetRange] = field(default_factory=dict)


def send(
    path: Path,
    feed: Feed,
    producer: TransactionalProducer,
    group_of: Callable[[str], BrokerConsumer],
    clock: Clock,
    told: Told | None = None,
    timeout: float = 120.0,
) -> Sent:
    """Send what changed since the version that was sent last. The producer has the table's `transactional_id`.

    `told` is believed where Kafka has forgotten the group's offset, which it does when nobody commits for some days.

    `group_of` makes the consumer of a group, which never joins it; whoever made it closes it. Raises `OwnershipLost` when a newer
    producer took over, `BrokerError` for Kafka's reasons, `ConfigError` for keys or columns that do not fit the table; then the
    producer is to be closed, and whether the version was sent is for the next one to find out.
    """
    began = clock.monotonic()
    producer.begin()
    try:
        return _send(path, feed, producer, group_of, told, timeout)
    except OwnershipLost as error:
        seconds = clock.monotonic() - began
        if seconds < feed.transaction_seconds:
            raise
        raise BrokerError(
            f"topic '{feed.topic}': sending took {seconds:.0f} s, and Kafka ends a transaction after "
            f"{feed.transaction_seconds:g} s. Readers of committed records see none of it. Raise `transaction_seconds` (beyond "
            "900 also the brokers' `transaction.max.timeout.ms`), then run this again."
        ) from error


def _send(
    path: Path,
    feed: Feed,
    producer: TransactionalProducer,
    group_of: Callable[[str], BrokerConsumer],
    told: Told | None,
    timeout: float,
) -> Sent:
    now = Snapshot.of(path)
    shape = Shape.of(now.schema.names, feed.keys, None if feed.columns == "all" else feed.columns)
    name = feed.group(path.name, now.table_id)
    group, mark = group_of(name), TopicPartition(feed.topic, 0)
    topic_id = group.topic_id()
    since = group.group_offsets(frozenset({mark})).get(mark)
    if since is None and told is not None and topic_id and (told.group, told.topic_id) == (name, topic_id):
        since = told.version
    outbox = _Outbox(producer, feed.topic, now.version)
    span = Span([]) if since is None and feed.start == "now" else between(path, since, now)
    outbox.send(span, shape)
    outbox.require_delivered(timeout)
    producer.send_offsets({mark: now.version}, group.group_metadata())
    producer.commit_transaction(timeout)
    offsets = dict(sorted(outbox.offsets.items()))
    return Sent(now.version, since, name, topic_id, outbox.rows, outbox.tombstones, span.whole, offsets)


class _Outbox:
    """Puts records into the open transaction, and counts them."""

    def __init__(self, producer: TransactionalProducer, topic: str, version: int) -> None:
        self._producer = producer
        self._topic = topic
        self._version = version
        self._headers = ((VERSION_HEADER, b"%d" % version),)
        self._failed = 0
        self._reason = ""
        self.rows = 0
        self.tombstones = 0
        self.offsets: dict[int, OffsetRange] = {}

    def send(self, span: Span, shape: Shape) -> None:
        """All tombstones first: a row that moves from one window to another is there in the end."""
        for part in span.parts:
            for key in gone(shape.only_keys(part.old), shape.only_keys(part.new)):
                self._put(key, None)
                self.tombstones += 1
        for part in span.parts:
            try:
                for key, value in changed(shape.rows(part.old), shape.rows(part.new)):
                    self._put(key, value)
                    self.rows += 1
            except SameKey as error:
                where = f" in {part.name}" if part.name else ""
                raise ConfigError(
                    f"version {self._version} of the table has two rows{where} with the key {error}. Nothing of it was sent. "
                    "Name more columns in `keys`, or add an audit `unique` to the job."
                ) from error

    def require_delivered(self, timeout: float) -> None:
        """Wait for the acknowledgements. Raises `BrokerError` where one is missing."""
        waiting = self._producer.flush(timeout)
        if waiting or self._failed:
            raise BrokerError(
                f"topic '{self._topic}': of version {self._version}, {self._failed} records were refused "
                f"({self._reason or 'none'}) and {waiting} not acknowledged within {timeout:g} s. Readers of committed records "
                "see none of it. Mend that, or see that the cluster is up, then run this again."
            )

    def _put(self, key: bytes, value: bytes | None) -> None:
        self._producer.send(self._topic, value, key, headers=self._headers, on_delivery=self._delivered)

    def _delivered(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self._failed += 1
            self._reason = self._reason or delivery.error
            return
        one = OffsetRange(delivery.offset, delivery.offset + 1)
        known = self.offsets.get(delivery.partition)
        self.offsets[delivery.partition] = one if known is None else known.hull(one)
