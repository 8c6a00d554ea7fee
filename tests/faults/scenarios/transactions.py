"""A transactional producer that aborts every second transaction, of Fibonacci's sizes, beside a member that stages."""

import signal

import confluent_kafka as ck

from tests.faults.lab import Lab
from tests.faults.ledger import FIRST_MS, Sent, digest, value_of
from tests.faults.scenario import Outcome, scenario

_SIZES = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)
_BATCH = 500


@scenario("transactions, every second aborted", times=1_000)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """Half of the transactions are aborted; their records are at offsets that the member must pass."""
    lab.set_up(_BATCH)
    sizes = _sizes(times, records)
    producer = ck.Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": lab.consumer.name, "linger.ms": 1})
    producer.init_transactions(60)
    with lab.faults(), lab.child(lab.order(_BATCH, until_caught_up=False, max_seconds=3600)) as member:
        for number, size in enumerate(sizes):
            transaction(lab, producer, size, abort=number % 2 == 1)
            if number % 2 == 1:
                lab.struck()
            if number % 100 == 0:
                lab.watch.look()
        # Something to commit after the last abort, by which its recovery is told.
        transaction(lab, producer, 10, abort=False)
        lab.until(lab.staged_to_the_end)
        member.signal(signal.SIGTERM)
        assert member.end() == 0, member.said[-1]
    lab.catch_up(_BATCH)
    return lab.outcome(times // 2, ends=lab.high())


def _sizes(times: int, records: int) -> list[int]:
    """Sizes that come to about so many records."""
    sizes = [_SIZES[number // 2 % len(_SIZES)] for number in range(times)]
    factor = max(1, records // sum(sizes))
    return [size * factor for size in sizes]


def transaction(lab: Lab, producer: ck.Producer, size: int, abort: bool) -> None:
    """Write one, and enter it into the ledger."""
    sent: list[Sent] = []
    first = lab.ledger.next
    values = [value_of(number, f"in a transaction {number}") for number in range(first, first + size)]
    producer.begin_transaction()
    for value in values:

        def note(error: ck.KafkaError | None, message: ck.Message, value: bytes = value) -> None:
            if error is None:
                sent.append(Sent(message.partition() or 0, message.offset() or 0, digest(value), False))

        partition = lab.chance.randrange(lab.partitions)
        producer.produce(lab.consumer.config.topic, value, partition=partition, timestamp=FIRST_MS, on_delivery=note)
        producer.poll(0)
    producer.flush(60)
    assert len(sent) == size
    if abort:
        producer.abort_transaction(60)
        lab.ledger.failed |= {digest(value) for value in values}
    else:
        producer.commit_transaction(60)
        lab.ledger.acked += sent
