"""Errors, named by the reaction that they call for.

    WeirError
    ├── ConfigError           a definition is wrong: mend the YAML; nothing ran
    ├── OwnershipLost         another writer took partitions: drop buffers, reload positions, seek, go on
    ├── InvalidRecord         one record is bad: dead letter, go on
    └── FatalError            stop; what is committed is safe
        ├── DataLoss          offsets are gone from the topic and were never staged
        ├── InvalidLimit      more invalid records than the definition allows
        ├── StorageError      the table cannot be read or written as it is
        └── BrokerError       the cluster refuses, or cannot be reached

Messages say what happened, where, what is safe and what to do.
"""


class WeirError(Exception):
    """Anything that this platform raises on purpose. The message is for the operator."""


class ConfigError(WeirError):
    """A definition is wrong."""


class OwnershipLost(WeirError):
    """Another writer moved a position, or took the partition over."""


class InvalidRecord(WeirError):
    """One record cannot become a row."""

    def __init__(self, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"partition {partition}, offset {offset}: {reason}")
        self.partition = partition
        self.offset = offset
        self.reason = reason


class FatalError(WeirError):
    """The consumer stops. Everything committed stays committed; a restart goes on from there."""


class DataLoss(FatalError):
    """Offsets between the table's position and what the topic still holds are gone."""


class InvalidLimit(FatalError):
    """The share or the run of invalid records passed the definition's limit."""


class StorageError(FatalError):
    """The table's state does not allow what was asked."""


class BrokerError(FatalError):
    """Kafka refuses, or cannot be reached."""
