"""A Kafka in memory, to test consumers with: topics, groups, transactions, and faults on order. See `docs/testing.md`."""

from consumers.brokers.memory.admin import MemoryAdmin
from consumers.brokers.memory.cluster import MemoryCluster
from consumers.brokers.memory.consumer import MemoryConsumer
from consumers.brokers.memory.faults import Call, Faults
from consumers.brokers.memory.producer import MemoryProducer
from consumers.brokers.memory.transactional import MemoryTransactionalProducer

__all__ = [
    "Call",
    "Faults",
    "MemoryAdmin",
    "MemoryCluster",
    "MemoryConsumer",
    "MemoryProducer",
    "MemoryTransactionalProducer",
]
