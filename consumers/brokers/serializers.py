"""Typed values into the bytes of a record. A serializer is a function, so any library's encoder is one."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa

from consumers.brokers.protocol import BrokerProducer, Delivery, Headers, Receipt

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
K_contra = TypeVar("K_contra", contravariant=True)

Serializer = Callable[[T], bytes | None]
"""The bytes of a value; None is a tombstone. Whatever it raises, nothing of the call has been sent."""

_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> bytes | None:
    """UTF-8 JSON of anything that msgspec knows (dicts, dataclasses, dates, decimals ...); None stays a tombstone."""
    return None if value is None else _encode(value)


def as_text(value: str | None) -> bytes | None:
    """UTF-8."""
    return None if value is None else value.encode()


def as_bytes(value: bytes | None) -> bytes | None:
    """The bytes themselves."""
    return value


class TypedTopic(Generic[K_contra, T_contra]):
    """A topic whose keys and values have types: serializes, and hands on to a producer that others may use as well."""

    def __init__(
        self,
        producer: BrokerProducer,
        topic: str,
        value: Serializer[T_contra],
        key: Serializer[K_contra],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._value = value
        self._key = key

    def send(
        self,
        value: T_contra,
        key: K_contra,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """As the producer's `send`."""
        self._producer.send(
            self._topic,
            self._value(value),
            self._key(key),
            headers=headers,
            timestamp_ms=timestamp_ms,
            partition=partition,
            on_delivery=on_delivery,
        )

    def send_all(self, values: Sequence[T_contra], keys: Iterable[K_contra]) -> Receipt:
        """As the producer's `send_batch`: a key for every value. Raises ValueError where their numbers differ."""
        columns = [
            pa.array([self._value(value) for value in values], pa.binary()),
            pa.array([self._key(key) for key in keys], pa.binary()),
        ]
        return self._producer.send_batch(self._topic, pa.RecordBatch.from_arrays(columns, ["value", "key"]))
