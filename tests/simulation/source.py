"""The topic that members read, and everybody who writes to it: the truth that the oracle compares with."""

from collections.abc import Container
from random import Random

from consumers.brokers.memory import MemoryCluster, MemoryProducer, MemoryTransactionalProducer
from consumers.brokers.memory.log import Kind as Entry
from consumers.brokers.protocol import Delivery
from consumers.types import TopicPartition
from tests.simulation.oracle import Kind, Produced

TOPIC = "t"
_KINDS: tuple[Kind, ...] = ("row", "row", "row", "row", "invalid", "dropped")
_KEYS = 4


class Source:
    """Writes records that are told apart by a uid, in a header and in the value."""

    def __init__(self, cluster: MemoryCluster, partitions: int, compact: bool, filters: bool) -> None:
        self.produced: dict[str, Produced] = {}
        self.life = 0
        self._cluster = cluster
        self._config = {"cleanup.policy": "compact"} if compact else {}
        self._compact = compact
        self._kinds = _KINDS if filters else _KINDS[:-1]
        self._writer = MemoryProducer(cluster, "writer")
        self._open: dict[int, tuple[MemoryTransactionalProducer, list[str]]] = {}
        self._made = 0
        cluster.create_topic(TOPIC, partitions, self._config)

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._cluster.every(TOPIC))

    def write(self, partition: int, count: int, random: Random) -> None:
        """Records outside of any transaction."""
        for _ in range(count):
            self._send(self._writer, partition, random)
        self._writer.poll()

    def write_in_transaction(self, name: int, partitions: list[int], count: int, random: Random) -> None:
        """More records of a transaction that stays open; the first begins it."""
        if name not in self._open:
            producer = MemoryTransactionalProducer(self._cluster, f"writer-{name}", timeout_seconds=1e9)
            producer.begin()
            self._open[name] = producer, []
        producer, uids = self._open[name]
        for partition in partitions:
            uids += [self._send(producer, partition, random) for _ in range(count)]
        producer.poll()
        for uid in uids:
            self.produced[uid].visible = False

    def end_transaction(self, name: int, commit: bool) -> None:
        """Commit or abort; nothing where none is open."""
        if name not in self._open:
            return
        producer, uids = self._open.pop(name)
        if commit:
            producer.commit_transaction()
            for uid in uids:
                self.produced[uid].visible = True
        else:
            producer.abort_transaction()

    def settle(self) -> None:
        """Commit whatever is open."""
        for name in list(self._open):
            self.end_transaction(name, True)

    def retain(self, tp: TopicPartition, share: float, read: bool) -> int:
        """Lose a part of a partition's records to retention. Returns the new start. `read` says whether anybody reads it yet."""
        log = self._cluster.log(tp)
        start = log.start + int((log.stable - log.start) * share)
        self._cluster.delete_records({tp: start})
        for record in self._present(tp.partition):
            if record.offset < start:
                record.gone = record.gone or ("retention" if read else "unread")
        return start

    def compact(self) -> bool:
        """Where the topic is a compacted one."""
        if not self._compact:
            return False
        self._cluster.compact(TOPIC)
        for tp in self.partitions:
            kept = {entry.offset for entry in self._cluster.log(tp).entries if entry.kind is Entry.DATA}
            for record in self._present(tp.partition):
                if record.visible and record.offset not in kept and not record.gone:
                    record.gone = "compaction"
        return True

    def create_anew(self, read: Container[int]) -> None:
        """Delete the topic, and make one of the same name. `read` are the partitions that somebody had begun to read."""
        self.settle()
        partitions = len(self.partitions)
        self._cluster.delete_topic(TOPIC)
        for record in self.produced.values():
            record.gone = record.gone or ("deleted" if record.partition in read else "unread")
        self.life += 1
        self._cluster.create_topic(TOPIC, partitions, self._config)

    def _present(self, partition: int) -> list[Produced]:
        return [r for r in self.produced.values() if r.partition == partition and r.life == self.life]

    def _send(self, producer: MemoryProducer, partition: int, random: Random) -> str:
        self._made += 1
        kind = random.choice(self._kinds)
        uid = f"{kind[0]}{self._made}"
        value = None if self._compact and kind == "row" and random.random() < 0.2 else f"{kind} {uid}".encode()

        def delivered(delivery: Delivery) -> None:
            self.produced[uid] = Produced(uid, partition, delivery.offset, value, kind, self.life)

        key = b"k%d" % random.randrange(_KEYS) if self._compact else uid.encode()
        headers = (("uid", uid.encode()),)
        producer.send(TOPIC, value, key, headers=headers, partition=partition, on_delivery=delivered)
        producer.poll()
        return uid
