"""Header names that only a client in C can send, through librdkafka's own mock of a broker, read by the real client.

`python -m tests.hostile.wire` prints the headers of each record as JSON. It is a process of its own, because confluent-kafka
makes tuples with null pointers of names that are not UTF-8, and whoever unpacks such a tuple dies.
"""

import ctypes
import json
import sys
from collections.abc import Sequence
from ctypes import c_char_p, c_int32, c_size_t, c_ssize_t, c_void_p
from pathlib import Path

import confluent_kafka as ck

from consumers.brokers.records import to_columns

Header = tuple[bytes, bytes | None]
SENT: Sequence[Sequence[Header]] = (
    [(b"plain", b"1")],
    [(b"first", b"0"), (b"\xff\xfe", b"v1"), (b"good", None), (b"\xc3(", b"v3"), (b"\xed\xa0\x80", None)],
    [],
    [(b"", b"\xff"), (b"\xf5", b"")],
)
_PRODUCER, _END, _TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADERS, _COPY = 0, 0, 1, 3, 4, 7, 10, 2


class _Sender:
    """librdkafka as C sees it: a producer of bytes."""

    def __init__(self, address: str) -> None:
        [path] = (Path(ck.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
        self._library = ctypes.CDLL(str(path))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
            getattr(self._library, name).restype = c_void_p
        error = ctypes.create_string_buffer(512)
        conf = c_void_p(self._library.rd_kafka_conf_new())
        assert self._library.rd_kafka_conf_set(conf, b"bootstrap.servers", address.encode(), error, 512) == 0, error.value
        self._client = c_void_p(self._library.rd_kafka_new(_PRODUCER, conf, error, 512))
        assert self._client.value, error.value

    def send(self, headers: Sequence[Header]) -> None:
        """A record with these headers."""
        made = c_void_p(self._library.rd_kafka_headers_new(len(headers)))
        for name, value in headers:
            size = c_ssize_t(-1 if value is None else len(value))
            assert self._library.rd_kafka_header_add(made, name, c_ssize_t(len(name)), value, size) == 0
        to = (_TOPIC, c_char_p(b"t"), _PARTITION, c_int32(0), _FLAGS, c_int32(_COPY))
        what = (_VALUE, c_char_p(b"{}"), c_size_t(2), _HEADERS, made)
        assert self._library.rd_kafka_producev(self._client, *to, *what, _END) == 0

    def flush(self) -> None:
        """Wait until all are delivered."""
        assert self._library.rd_kafka_flush(self._client, 30_000) == 0


def main() -> list[list[list[str | None]]]:
    """Send, read, and tell the headers; values in hexadecimal."""
    broker = ck.Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 2})
    [node] = broker.list_topics("t", timeout=30).brokers.values()
    sender = _Sender(f"{node.host}:{node.port}")
    for headers in SENT:
        sender.send(headers)
    sender.flush()
    reader = ck.Consumer({"bootstrap.servers": f"{node.host}:{node.port}", "group.id": "g", "auto.offset.reset": "earliest"})
    reader.assign([ck.TopicPartition("t", 0, 0)])
    messages = reader.consume(len(SENT), 60)
    told = to_columns(messages)["headers"].to_pylist()
    assert told == to_columns(messages)["headers"].to_pylist(), "asked again, they say something else"
    reader.close()
    return [[[each["key"], None if each["value"] is None else each["value"].hex()] for each in of or ()] for of in told]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()))
