"""Functions that the benchmarks run in worker processes, which import this module and so must find little here."""

import pyarrow as pa

from consumers.clock import SystemClock
from consumers.processing.strategies.each import Record

_CLOCK = SystemClock()


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Nothing: what is left is the way there and back."""
    return batch


def wait(record: Record) -> Record:
    """What a call of a service is like: 1 ms without using the processor."""
    _CLOCK.sleep(0.001)
    return record


def compute(record: Record) -> bytes:
    """A checksum in pure Python: some 10 µs of the processor for 200 bytes."""
    check = 0
    for byte in record.value or b"":
        check = (check * 31 + byte) & 0xFFFFFFFF
    return check.to_bytes(4, "big")
