"""Kafka → filter → map → Kafka beside Arroyo, interleaved in one run: `python -m benchmarks.transform --help`.

The same topic, work and client settings; the outputs are compared. What counts is the ratio.
"""

import uuid
from typing import Annotated

import typer
from confluent_kafka.admin import AdminClient

from benchmarks.cluster import cluster
from benchmarks.rounds import Figures, run, show
from benchmarks.topic import create, fill
from benchmarks.transformers import CONTESTANTS, expected_of
from consumers.brokers.kafka import KafkaAssignment
from consumers.brokers.options import KafkaOptions
from consumers.brokers.protocol import Partitions
from consumers.types import Positions


def main(
    records: Annotated[int, typer.Option(min=1000)] = 500_000,
    runs: Annotated[int, typer.Option(min=1)] = 5,
    bootstrap: Annotated[str | None, typer.Option(help="A cluster to use instead of a fresh one.")] = None,
) -> None:
    """Measure, and print a table."""
    with cluster(bootstrap) as servers:
        _measure(servers, records, runs)


def _measure(bootstrap_servers: str, records: int, runs: int) -> None:
    source, kept = f"bench-{records}", expected_of(records)
    fill(bootstrap_servers, source, records)
    rounds = [{which: _run(which, bootstrap_servers, source, records, kept) for which in CONTESTANTS} for _ in range(runs)]
    found = {figures["digest"] for one in rounds for figures in one.values()}
    if len(found) != 1:
        raise SystemExit(f"the contestants wrote different records: {found}")
    show(f"{records:,} records, {kept:,} kept", rounds, beside="arroyo")


def _run(which: str, bootstrap_servers: str, source: str, records: int, kept: int) -> Figures:
    """One run, to a topic of its own; and what it wrote."""
    target = f"bench-out-{uuid.uuid4()}"
    create(bootstrap_servers, target)
    figures = run("benchmarks.transformers", which, bootstrap_servers, source, target, records, kept)
    found = {**figures, "digest": digest(bootstrap_servers, target)}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_topics([target])[target].result()
    return found


def digest(bootstrap_servers: str, topic: str) -> tuple[int, int]:
    """How many records the topic has, and a checksum of them that is the same in any order."""
    reader = KafkaAssignment(KafkaOptions(bootstrap_servers), topic, "digest")
    reader.subscribe(_FromTheBeginning())
    ends = {tp: marks.high for tp, marks in reader.watermarks(reader.partitions()).items()}
    reached, count, total = dict.fromkeys(ends, 0), 0, 0
    while any(reached[tp] < end for tp, end in ends.items()):
        if (batch := reader.poll(50_000, 1.0)) is not None:
            reached |= {tp: step.end for tp, step in batch.ranges.items()}
            count += len(batch.records)
            keys, found = batch.records["key"].to_pylist(), batch.records["value"].to_pylist()
            total += sum(map(hash, zip(keys, found, strict=True)))
    reader.close()
    return count, total


class _FromTheBeginning:
    def assigned(self, partitions: Partitions) -> Positions:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Partitions) -> None:
        pass

    def lost(self, partitions: Partitions) -> None:
        pass


if __name__ == "__main__":
    typer.run(main)
