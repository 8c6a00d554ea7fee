"""Errors, named by the reaction that they call for.

    WeirError
    ├── ConfigError           a definition is wrong: mend the YAML; nothing ran
    ├── OwnershipLost         another writer took partitions: drop buffers, reload positions, seek, go on
    ├── InvalidRecord         one record is bad: dead letter, go on
    ├── InvalidRecords        several are, named at once: dead letters, go on
    ├── InvalidValue          what a function was given is bad; who knows its record makes it InvalidRecord
    └── FatalError            stop; what is committed is safe
        ├── TaskFailed        a user's function raised something else than that a record is invalid
        ├── DataLoss          offsets are gone from the topic and were never staged
        ├── InvalidLimit      more invalid records than the definition allows
        ├── StorageError      the table cannot be read or written as it is
        └── BrokerError       the cluster refuses, or cannot be reached

Messages say what happened, where, what is safe and what to do.
"""

from collections.abc import Iterable


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

    def __reduce__(self) -> tuple[type["InvalidRecord"], tuple[int, int, str]]:
        # An error with arguments of its own crosses to another process only when it says how it is made again.
        return InvalidRecord, (self.partition, self.offset, self.reason)


class InvalidRecords(WeirError):
    """Several records cannot become rows."""

    def __init__(self, records: Iterable[InvalidRecord]) -> None:
        self.records = tuple(records)
        super().__init__("; ".join(map(str, self.records)))

    def __reduce__(self) -> tuple[type["InvalidRecords"], tuple[tuple[InvalidRecord, ...]]]:
        return InvalidRecords, (self.records,)


class InvalidValue(WeirError):
    """What a function was given is invalid. The message is the reason. Raised where the partition and offset are not known."""


class FatalError(WeirError):
    """The consumer stops. Everything committed stays committed; a restart goes on from there."""


class TaskFailed(FatalError):
    """A user's function raised. The message names it, the topic, the partitions and the offsets."""


class DataLoss(FatalError):
    """Offsets between the table's position and what the topic still holds are gone."""


class InvalidLimit(FatalError):
    """The share or the run of invalid records passed the definition's limit."""


class StorageError(FatalError):
    """The table's state does not allow what was asked."""


class BrokerError(FatalError):
    """Kafka refuses, or cannot be reached."""


def within(error: BaseException) -> str:
    """An error's message as a part of a sentence: without the full stop at its end."""
    return str(error).removesuffix(".")
