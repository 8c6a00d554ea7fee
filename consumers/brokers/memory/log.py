"""One partition's log: offsets, transactions, retention, compaction. It knows nothing of members and has no clock."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from consumers.brokers.protocol import Headers
from consumers.errors import OwnershipLost

RECORD_OVERHEAD = 70
_OFFSET = attrgetter("offset")


class Kind(Enum):
    """What takes an offset."""

    DATA = "a record"
    ABORTED = "a record of an aborted transaction"
    CONTROL = "the marker at a transaction's end"


class Draft(NamedTuple):
    """A record before it has an offset. `timestamp` is in milliseconds; None for the time of writing."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None

    @property
    def size(self) -> int:
        """Bytes that count against `max.message.bytes`."""
        size = len(self.value or b"") + len(self.key or b"") + RECORD_OVERHEAD
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size


class Entry(NamedTuple):
    """What is at an offset."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    size: int
    kind: Kind = Kind.DATA
    producer: int = -1


@dataclass(frozen=True, slots=True)
class Writer:
    """A producer's identity: its id, the epoch that fences older ones, and whether its records belong to a transaction."""

    producer: int
    epoch: int = 0
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The part of a topic's configuration that changes what its logs hold; -1 is no limit.

    Unlike a real cluster's, the default keeps records for ever, so that records with old timestamps do not vanish from a test.
    """

    compact: bool = False
    retention_ms: int = -1
    retention_bytes: int = -1
    delete_retention_ms: int = 86_400_000
    max_message_bytes: int = 1_048_588
    append_time: bool = False

    @property
    def forgets(self) -> bool:
        """Whether retention takes anything."""
        return self.retention_ms >= 0 or self.retention_bytes >= 0

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "LogSettings":
        """From Kafka's own names; those that mean nothing here are ignored."""
        return cls(
            compact="compact" in config.get("cleanup.policy", "delete"),
            retention_ms=int(config.get("retention.ms", -1)),
            retention_bytes=int(config.get("retention.bytes", -1)),
            delete_retention_ms=int(config.get("delete.retention.ms", 86_400_000)),
            max_message_bytes=int(config.get("max.message.bytes", 1_048_588)),
            append_time=config.get("message.timestamp.type") == "LogAppendTime",
        )

    def config(self) -> dict[str, str]:
        """The inverse of `of`."""
        return {
            "cleanup.policy": "compact" if self.compact else "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": str(self.retention_bytes),
            "delete.retention.ms": str(self.delete_retention_ms),
            "max.message.bytes": str(self.max_message_bytes),
            "message.timestamp.type": "LogAppendTime" if self.append_time else "CreateTime",
        }


class PartitionLog:
    """Entries in offset order. `start` is the first offset that may be read, `end` the next to be written."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.start = 0
        self.end = 0
        self.entries: list[Entry] = []
        self._open: dict[int, int] = {}
        self._sequences: dict[int, tuple[int, int, int]] = {}
        self._horizons: dict[int, int] = {}
        self._bytes = 0

    @property
    def stable(self) -> int:
        """The last stable offset: where the first open transaction begins, else the end."""
        return min(self._open.values(), default=self.end)

    def append(self, drafts: Sequence[Draft], now_ms: int, writer: Writer | None = None, sequence: int = 0) -> int:
        """Write records; returns the first's offset.

        A `writer` numbers what it writes to a partition from 0. The same number again is the retry of an acknowledged write:
        nothing is written, the answer is repeated. Raises `OwnershipLost` for an older epoch than the log has seen.
        """
        first = self.end
        if writer is not None:
            epoch, last, at = self._sequences.get(writer.producer, (writer.epoch, -1, 0))
            if writer.epoch < epoch:
                raise OwnershipLost(f"a newer producer took over from producer {writer.producer}, epoch {writer.epoch}")
            if writer.epoch == epoch and sequence == last:
                return at
            self._sequences[writer.producer] = (writer.epoch, sequence, first)
        producer = -1
        if writer is not None and writer.transactional:
            producer = writer.producer
            self._open.setdefault(producer, first)
        for offset, draft in enumerate(drafts, first):
            stamp = now_ms if draft.timestamp is None or self.settings.append_time else draft.timestamp
            size = draft.size
            self._bytes += size
            self.entries.append(Entry(offset, stamp, draft.key, draft.value, draft.headers, size, Kind.DATA, producer))
        self.end = first + len(drafts)
        return first

    def end_transaction(self, producer: int, commit: bool, now_ms: int) -> None:
        """Write the marker that makes a transaction's records visible, or hides them for ever."""
        first = self._open.pop(producer, None)
        if first is not None and not commit:
            for i in range(self._index(first), len(self.entries)):
                entry = self.entries[i]
                if entry.producer == producer and entry.kind is Kind.DATA:
                    self.entries[i] = entry._replace(kind=Kind.ABORTED)
        self.entries.append(Entry(self.end, now_ms, None, None, (), RECORD_OVERHEAD, Kind.CONTROL, producer))
        self.end += 1
        self._bytes += RECORD_OVERHEAD

    def read(self, position: int, limit: int, committed: bool = True) -> tuple[list[Entry], int]:
        """Up to `limit` records from `position` on, and the next offset to read: past markers and what is hidden."""
        end = self.stable if committed else self.end
        found: list[Entry] = []
        for i in range(self._index(position), len(self.entries)):
            entry = self.entries[i]
            if entry.offset >= end:
                break
            if entry.kind is Kind.DATA or (entry.kind is Kind.ABORTED and not committed):
                found.append(entry)
                if len(found) == limit:
                    return found, entry.offset + 1
        return found, max(end, position)

    def holds(self, position: int) -> bool:
        """Whether a fetch from here is in range."""
        return self.start <= position <= self.end

    def offset_at(self, timestamp_ms: int) -> int:
        """The first offset at or after a time, as far as transactions have ended; else their end."""
        stable = self.stable
        for entry in self.entries:
            if entry.offset >= stable:
                break
            if entry.timestamp >= timestamp_ms and entry.kind is Kind.DATA:
                return entry.offset
        return stable

    def retain(self, now_ms: int) -> None:
        """Drop what retention by time or by bytes no longer keeps, record by record."""
        settings, entries, gone = self.settings, self.entries, 0
        if settings.retention_ms >= 0:
            oldest = now_ms - settings.retention_ms
            while gone < len(entries) and entries[gone].timestamp < oldest:
                gone += 1
        if settings.retention_bytes >= 0:
            held = self._bytes - sum(entry.size for entry in entries[:gone])
            while gone < len(entries) and held > settings.retention_bytes:
                held -= entries[gone].size
                gone += 1
        if gone:
            self.delete_before(entries[gone].offset if gone < len(entries) else self.end)

    def delete_before(self, offset: int) -> None:
        """Move the log's start."""
        gone = self._index(offset)
        self._bytes -= sum(entry.size for entry in self.entries[:gone])
        del self.entries[:gone]
        self.start = max(self.start, offset)

    def cut(self, end: int) -> None:
        """Lose everything from `end` on, as an unclean leader election does; those offsets are given out again."""
        kept = self._index(end)
        self._bytes -= sum(entry.size for entry in self.entries[kept:])
        del self.entries[kept:]
        self.end = min(self.end, end)
        self.start = min(self.start, self.end)
        self._open = {producer: first for producer, first in self._open.items() if first < end}
        self._sequences = {producer: seen for producer, seen in self._sequences.items() if seen[2] < end}

    def compact(self, now_ms: int) -> None:
        """Keep the newest record of every key among what is stable, and drop what is aborted; offsets stay.

        Tombstones stay until `delete.retention.ms` after the first compaction that met them.
        """
        stable = self.stable
        newest = {e.key: e.offset for e in self.entries if e.kind is Kind.DATA and e.offset < stable}
        kept = []
        for entry in self.entries:
            if entry.offset >= stable or entry.kind is Kind.CONTROL or self._survives(entry, newest, now_ms):
                kept.append(entry)
            else:
                self._bytes -= entry.size
        self.entries = kept

    def _survives(self, entry: Entry, newest: Mapping[bytes | None, int], now_ms: int) -> bool:
        if entry.kind is Kind.ABORTED or newest[entry.key] != entry.offset:
            return False
        if entry.value is not None:
            return True
        return now_ms < self._horizons.setdefault(entry.offset, now_ms + self.settings.delete_retention_ms)

    def _index(self, offset: int) -> int:
        entries = self.entries
        if not entries or offset <= entries[0].offset:
            return 0
        guess = offset - entries[0].offset
        if guess < len(entries) and entries[guess].offset == offset:
            return guess
        return bisect_left(entries, offset, key=_OFFSET)
