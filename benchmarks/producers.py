"""One measured run, in a process of its own: `python -m benchmarks.producers bare|send|send_batch BOOTSTRAP TOPIC RECORDS`.

The records are made beforehand. The time runs from the first `produce` to the last acknowledgement.
"""

import sys
from collections.abc import Callable, Sequence

import confluent_kafka as ck
import pyarrow as pa

from benchmarks.rounds import Stopwatch
from benchmarks.topic import values
from consumers.brokers.options import KafkaOptions
from consumers.brokers.producer import KafkaProducer
from consumers.brokers.producer_settings import DEFAULTS

_BATCH = 10_000

Records = Sequence[tuple[bytes, bytes]]


def bare(bootstrap_servers: str, topic: str, records: Records) -> Stopwatch:
    """`Producer.produce` with a callback, and a poll after each, as the client's documentation shows."""
    return _bare(bootstrap_servers, topic, records, poll_every=1)


def bare_seldom(bootstrap_servers: str, topic: str, records: Records) -> Stopwatch:
    """The same by somebody who has measured: a poll after every two thousand records."""
    return _bare(bootstrap_servers, topic, records, poll_every=2_000)


def _bare(bootstrap_servers: str, topic: str, records: Records, poll_every: int) -> Stopwatch:
    ours = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
    producer = ck.Producer({**DEFAULTS, **ours, "bootstrap.servers": bootstrap_servers})
    delivered = 0

    def acknowledged(error: ck.KafkaError | None, _message: ck.Message) -> None:
        nonlocal delivered
        if error is not None:
            raise SystemExit(str(error))
        delivered += 1

    watch = Stopwatch()
    for number, (value, key) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=acknowledged)
                break
            except BufferError:
                producer.poll(0.05)
        if not number % poll_every:
            producer.poll(0)
    producer.flush()
    return _checked(watch, delivered, records)


def send(bootstrap_servers: str, topic: str, records: Records) -> Stopwatch:
    """`KafkaProducer.send`."""
    watch = Stopwatch()
    with KafkaProducer(KafkaOptions(bootstrap_servers)) as producer:
        for value, key in records:
            producer.send(topic, value, key)
    return _checked(watch, producer.delivered, records)


def send_batch(bootstrap_servers: str, topic: str, records: Records) -> Stopwatch:
    """`KafkaProducer.send_batch`, ten thousand records each."""
    columns = [pa.array(column, pa.binary()) for column in zip(*records, strict=True)]
    whole = pa.RecordBatch.from_arrays(columns, ["value", "key"])
    watch = Stopwatch()
    with KafkaProducer(KafkaOptions(bootstrap_servers)) as producer:
        for start in range(0, len(whole), _BATCH):
            producer.send_batch(topic, whole.slice(start, _BATCH))
    return _checked(watch, producer.delivered, records)


CONTESTANTS: dict[str, Callable[[str, str, Records], Stopwatch]] = {
    "bare": bare,
    "bare, fewer polls": bare_seldom,
    "send": send,
    "send_batch": send_batch,
}


def _checked(watch: Stopwatch, delivered: int, records: Records) -> Stopwatch:
    watch.stop()
    if delivered != len(records):
        raise SystemExit(f"{delivered} of {len(records)} records were acknowledged")
    return watch


def main() -> None:
    """Run one contestant and print its figures."""
    which, bootstrap_servers, topic, records = sys.argv[1:5]
    made = [(value, b"%d" % (i % 1000)) for i, value in enumerate(values(int(records)))]
    CONTESTANTS[which](bootstrap_servers, topic, made).print(len(made))


if __name__ == "__main__":
    main()
