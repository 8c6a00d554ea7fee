"""Which rows differ between two versions of a table. Pure, over rows as Kafka gets them; knows neither tables nor Kafka."""

import hashlib
from collections.abc import Iterable, Iterator

Row = tuple[bytes, bytes]
"""The key and the value of a record."""
_DIGEST_BYTES = 16


class SameKey(ValueError):
    """Two rows have the same key, so that a reader by key would keep one of them."""


def changed(old: Iterable[Row], new: Iterable[Row]) -> Iterator[Row]:
    """The rows of `new` that `old` has not, or has with another value, in the order of `new`.

    Holds every key of the two, and a digest of the old values. Raises `SameKey` for a key that `new` has twice.
    """
    before = {key: _digest(value) for key, value in old}
    seen: set[bytes] = set()
    for key, value in new:
        if key in seen:
            raise SameKey(key.decode())
        seen.add(key)
        if before.get(key) != _digest(value):
            yield key, value


def gone(old: Iterable[bytes], new: Iterable[bytes]) -> list[bytes]:
    """The keys of `old` that `new` has not, each once, in the order of `old`."""
    left = dict.fromkeys(old)
    for key in new:
        left.pop(key, None)
    return list(left)


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
