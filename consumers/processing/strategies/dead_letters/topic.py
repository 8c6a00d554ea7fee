"""Dead letters in another topic: key and value byte for byte, where they came from and why in headers.

At least once: a letter that was on its way when its partition went elsewhere, or when the process died, may be there twice.
Readers tell repeats by the headers `weir-topic`, `weir-partition` and `weir-offset`.
"""

from typing import Any

import pyarrow as pa

from consumers.brokers.protocol import BrokerProducer, Receipt
from consumers.errors import BrokerError
from consumers.processing.strategies.dead_letters.letters import Durable
from consumers.types import HEADERS


class TopicSink:
    """Produces dead letters to `topic`. The producer may serve others too, and is closed by whoever made it.

    A letter has the time at which it was written: with the record's own, an old one would fall to the topic's retention at once.
    """

    def __init__(self, producer: BrokerProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def submit(self, letters: pa.RecordBatch) -> Durable:
        """Send; durable once all are acknowledged."""
        columns = [letters["key"], letters["value"], pa.array([_headers(row) for row in _origins(letters)], HEADERS)]
        receipt = self._producer.send_batch(self._topic, pa.RecordBatch.from_arrays(columns, ["key", "value", "headers"]))
        return lambda: self._acknowledged(receipt, letters)

    def poll(self) -> None:
        """Take in acknowledgements."""
        self._producer.poll()

    def flush(self, timeout: float) -> bool:
        """Wait for the acknowledgements."""
        return self._producer.flush(timeout) == 0

    def discard(self) -> None:
        """Nothing: what was sent cannot be called back."""

    def close(self) -> None:
        """Nothing."""

    def _acknowledged(self, receipt: Receipt, letters: pa.RecordBatch) -> bool:
        if receipt.failed:
            index, why = receipt.failed[0]
            letter = letters.slice(index, 1).to_pylist()[0]
            raise BrokerError(
                f"the dead letter of {letter['topic']}/{letter['partition']} at offset {letter['offset']} could not be written "
                f"to topic {self._topic}: {why}. Nothing from that record on was committed. See that the topic exists and takes "
                "records of that size, then start again."
            )
        return receipt.waiting == 0


def _origins(letters: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = ["topic", "partition", "offset", "timestamp", "headers", "reason"]
    origins = letters.select(columns)
    stamps = pa.array(origins["timestamp"].cast(pa.int64()))
    rows: list[dict[str, Any]] = origins.set_column(3, "timestamp", stamps).to_pylist()
    return rows


def _headers(letter: dict[str, Any]) -> list[dict[str, Any]]:
    """The record's own headers, then ours; the timestamp in milliseconds since the epoch, absent where the record has none."""
    ours = {
        "weir-reason": letter["reason"],
        "weir-topic": letter["topic"],
        "weir-partition": letter["partition"],
        "weir-offset": letter["offset"],
        "weir-timestamp": letter["timestamp"],
    }
    own = letter["headers"] or []
    return own + [{"key": name, "value": str(value).encode()} for name, value in ours.items() if value is not None]
