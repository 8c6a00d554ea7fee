"""What became of records that were sent: which row of a batch failed, and the report at the end. Knows no cluster."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from consumers.brokers.failures import undelivered
from consumers.brokers.protocol import Receipt
from consumers.errors import BrokerError

_KEPT_REASONS = 10


@dataclass(frozen=True)
class DeliveryReport:
    """How many records the cluster acknowledged and how many it did not, with the first few reasons."""

    delivered: int
    failed: int
    errors: tuple[str, ...] = ()


class UndeliveredError(BrokerError):
    """Some records did not reach the cluster.

    `report` has the numbers; producing again writes the others twice.
    """

    def __init__(self, report: DeliveryReport) -> None:
        self.report = report
        total = report.delivered + report.failed
        super().__init__(
            f"{report.failed} of {total} records were not delivered "
            f"({'; '.join(report.errors) or 'no reason given'}); "
            "mend that, or see that the cluster is up, then produce into a new topic or accept repeated records"
        )


class Tally:
    """Counts records that were sent and what was reported of them."""

    def __init__(self) -> None:
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self._reasons: dict[str, None] = {}

    @property
    def waiting(self) -> int:
        """Records without a report."""
        return self.sent - self.delivered - self.failed

    def fail(self, reason: str) -> None:
        """One record failed."""
        self.failed += 1
        if len(self._reasons) < _KEPT_REASONS:
            self._reasons[reason] = None

    def give_up(self) -> None:
        """Nothing more will be reported: what waits has failed."""
        self.failed += self.waiting

    def report(self) -> DeliveryReport:
        """The figures so far."""
        return DeliveryReport(self.delivered, self.failed, tuple(self._reasons))


class SentBatch:
    """A batch on its way: takes its records' reports, and finds the row of one that failed.

    All records share one callback, since one for each would cost as much as sending. A failed record is found by its key, value
    and partition; of records that are equal in all three, the first is named.
    """

    def __init__(self, receipt: Receipt, tally: Tally, records: pa.RecordBatch, partitions: Sequence[int | None] | None) -> None:
        self.receipt = receipt
        self._tally = tally
        self._records = records
        self._partitions = partitions
        self._refused: set[int] = set()
        self._rows: dict[tuple[bytes | None, bytes | None, int | None], list[int]] | None = None

    def reported(self, error: KafkaError | None, message: Message) -> None:
        """The client's delivery callback."""
        self.receipt.waiting -= 1
        if error is None:
            self._tally.delivered += 1
        else:
            partition = None if self._partitions is None else message.partition()
            self._failed(self._row(message.key(), message.value(), partition), undelivered(error))

    def refused(self, row: int, reason: str) -> None:
        """A record that never was on its way."""
        self.receipt.waiting -= 1
        self._refused.add(row)
        self._failed(row, reason)

    def _failed(self, row: int, reason: str) -> None:
        self.receipt.failed.append((row, reason))
        self._tally.fail(reason)

    def _row(self, key: bytes | None, value: bytes | None, partition: int | None) -> int:
        if self._rows is None:
            self._rows = self._index()
        # Without a partition of its own, a record was sent to one that the client chose.
        rows = self._rows.get((key, value, partition)) or self._rows[key, value, None]
        while (row := rows.pop(0)) in self._refused:
            pass
        return row

    def _index(self) -> dict[tuple[bytes | None, bytes | None, int | None], list[int]]:
        count = len(self._records)
        found = defaultdict(list)
        keys = self._records["key"].to_pylist() if "key" in self._records.schema.names else [None] * count
        values = self._records["value"].to_pylist()
        for row, identity in enumerate(zip(keys, values, self._partitions or [None] * count, strict=True)):
            found[identity].append(row)
        return found
