"""An admin of the in-memory cluster."""

from collections.abc import Iterable, Mapping

from consumers.brokers.memory.cluster import MemoryCluster
from consumers.types import Positions, TopicPartition, Watermarks


class MemoryAdmin:
    """`BrokerAdmin` on a `MemoryCluster`. Errors are `BrokerError`."""

    def __init__(self, cluster: MemoryCluster, client_id: str = "admin") -> None:
        self.client_id = client_id
        self._cluster = cluster

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic; see `LogSettings` for the configuration that is obeyed."""
        self._cluster.call("create_topic", self.client_id, lambda: self._cluster.create_topic(topic, partitions, config))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic; one of the same name made later has another id."""
        self._cluster.call("delete_topic", self.client_id, lambda: self._cluster.delete_topic(topic))

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow a topic to `total` partitions."""
        self._cluster.call("add_partitions", self.client_id, lambda: self._cluster.add_partitions(topic, total))

    def delete_records(self, before: Positions) -> None:
        """Drop the records before these offsets, as retention would."""
        self._cluster.call("delete_records", self.client_id, lambda: self._cluster.delete_records(before))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self._cluster.call("topics", self.client_id, self._cluster.topics)

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""
        return len(self._cluster.call("partitions", self.client_id, lambda: self._cluster.every(topic)))

    def topic_id(self, topic: str) -> str:
        """The id of the topic's present incarnation; empty where the cluster knows none."""
        return self._cluster.call("topic_id", self.client_id, lambda: self._cluster.topic(topic).id)

    def topic_config(self, topic: str) -> dict[str, str]:
        """The settings that are in force for the topic, as far as this cluster obeys them."""

        def asked() -> dict[str, str]:
            return self._cluster.topic(topic).settings.config()

        return self._cluster.call("topic_config", self.client_id, asked)

    def watermarks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        """The low and high watermark of every partition."""
        cluster = self._cluster
        return cluster.call(
            "watermarks", self.client_id, lambda: {tp: cluster.watermarks(tp, False) for tp in sorted(cluster.every(topic))}
        )

    def stable_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        """Low and high watermarks as a reader of committed transactions sees them."""
        cluster, asked = self._cluster, list(partitions)
        return cluster.call("watermarks", self.client_id, lambda: {tp: cluster.watermarks(tp, True) for tp in asked})

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[TopicPartition, int]:
        """Per partition, the first offset at or after a time, or the high watermark where there is none."""
        cluster = self._cluster
        return cluster.call(
            "offsets_at",
            self.client_id,
            lambda: {tp: cluster.log(tp).offset_at(timestamp_ms) for tp in sorted(cluster.every(topic))},
        )

    def group_offsets(self, group: str, topic: str) -> dict[TopicPartition, int]:
        """What the group has committed, by partition; partitions without a commit are absent."""
        known = self._cluster.call("group_offsets", self.client_id, lambda: dict(self._cluster.group(group).offsets))
        return {tp: offset for tp, offset in known.items() if tp.topic == topic}

    def set_group_offsets(self, group: str, positions: Positions) -> bool:
        """Commit these for a group without members. False, and nothing changed, where it has some."""
        return self._cluster.call("set_group_offsets", self.client_id, lambda: self._cluster.set_offsets(group, positions))

    def close(self) -> None:
        """Nothing is held."""
