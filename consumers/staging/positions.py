"""How a table's Delta log holds positions: as versions of application transactions.

Per (consumer, topic, partition): `<consumer>/<topic>/<partition>`, whose version is the next offset to read; the same with
`/epoch`, whose version grows whenever a process takes the partition over; and, only after a log was cut short, with `/cut`, whose
version is the epoch in which that was noticed. Per topic `<consumer>/<topic>/id`, whose version is a hash of the topic's id, so
that a recreated topic is noticed.
"""

from collections.abc import Iterable
from pathlib import Path

from deltalake import DeltaTable, Transaction

from consumers.types import Position, TopicPartition, topic_hash

_GAP = 8
_CUT = "~"


def position_id(consumer: str, tp: TopicPartition) -> str:
    """The application transaction that holds a position."""
    return f"{consumer}/{tp.topic}/{tp.partition}"


def epoch_id(consumer: str, tp: TopicPartition) -> str:
    """The application transaction that holds a partition's epoch."""
    return f"{position_id(consumer, tp)}/epoch"


def cut_id(consumer: str, tp: TopicPartition) -> str:
    """The application transaction that says since which epoch offsets are being used again."""
    return f"{position_id(consumer, tp)}/cut"


def rewrites_id(consumer: str) -> str:
    """The application transaction of commits that change rows below the positions: of two at once, Delta takes one."""
    return f"{consumer}/rewrites"


def topic_transaction(consumer: str, topic: str, topic_id: str) -> Transaction:
    """The application transaction that remembers which incarnation of a topic the positions belong to."""
    return Transaction(f"{consumer}/{topic}/id", topic_hash(topic_id))


def known_topic(table: DeltaTable, consumer: str, topic: str) -> int | None:
    """The hash of the topic that the positions belong to; None before the first commit."""
    version: int | None = table.transaction_version(f"{consumer}/{topic}/id")
    return version


def position(table: DeltaTable, consumer: str, tp: TopicPartition) -> Position:
    """A partition's position in the table's loaded snapshot."""
    return Position(
        offset=table.transaction_version(position_id(consumer, tp)),
        epoch=table.transaction_version(epoch_id(consumer, tp)) or 0,
        cut=table.transaction_version(cut_id(consumer, tp)) or 0,
    )


def all_positions(table: DeltaTable, consumer: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """The next offset of every partition of these topics that has one, in the loaded snapshot.

    A consumer's first member pins all partitions that a topic has, so there is no gap among them but for a moment.
    """
    found: dict[TopicPartition, int] = {}
    for topic in sorted(topics):
        partition = last = 0
        while partition <= last + _GAP:
            offset = table.transaction_version(position_id(consumer, TopicPartition(topic, partition)))
            if offset is not None:
                found[TopicPartition(topic, partition)], last = offset, partition
            partition += 1
    return found


def label(topic_id: str, cut: int) -> str:
    """What rows have in `_topic_id`: the incarnation of the topic, and of the partition's log once that was cut short."""
    return f"{topic_id}{_CUT}{cut}" if cut else topic_id


def topic_id_of(label: str) -> str:
    """The id of the topic in a label."""
    return label.partition(_CUT)[0]


def is_current(table: DeltaTable, consumer: str, tp: TopicPartition, label: str) -> bool:
    """Whether rows labelled so (`_topic_id`) are of the incarnation that the partition's position belongs to."""
    topic_id, _, cut = label.partition(_CUT)
    return known_topic(table, consumer, tp.topic) == topic_hash(topic_id) and position(table, consumer, tp).cut == int(cut or 0)


def committed_positions(table: Path, consumer: str, topic: str, partitions: int) -> dict[TopicPartition, int]:
    """The next offset of each of a topic's partitions that has one, from the newest commit. Empty for a missing table."""
    if not DeltaTable.is_deltatable(str(table)):
        return {}
    snapshot = DeltaTable(table)
    every = (TopicPartition(topic, p) for p in range(partitions))
    found = {tp: snapshot.transaction_version(position_id(consumer, tp)) for tp in every}
    return {tp: offset for tp, offset in found.items() if offset is not None}
