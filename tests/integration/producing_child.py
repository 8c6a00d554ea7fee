"""A producer that is killed with a transaction open: `python -m tests.integration.producing_child BOOTSTRAP TOPIC ID`."""

import sys

from consumers.brokers.options import KafkaOptions
from consumers.brokers.transactions import KafkaTransactionalProducer


def main() -> None:
    """Leave records in the log, say so, and wait for the end."""
    bootstrap_servers, topic, transactional_id = sys.argv[1:4]
    producer = KafkaTransactionalProducer(KafkaOptions(bootstrap_servers), transactional_id)
    producer.begin()
    for number in range(10):
        producer.send(topic, b"killed %d" % number, partition=0)
    assert producer.flush(30) == 0
    sys.stdout.write("sent\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
