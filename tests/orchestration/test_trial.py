from pathlib import Path
from typing import Any

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from orchestration.proposal.sample import read
from orchestration.trial import Trial, attempt
from tests.orchestration.staged_tables import consumer_in

CLOCK = ManualClock(1_704_200_000)


def tried(folder: Path, *values: bytes | None, **attributes: Any) -> Trial:
    """What a consumer makes of these values, a minute apart from 2024-01-01 on."""
    cluster = MemoryCluster(CLOCK)
    MemoryAdmin(cluster).create_topic("orders", 2)
    producer = MemoryProducer(cluster)
    for i, value in enumerate(values):
        producer.send("orders", value, b"key", partition=i % 2, timestamp_ms=1_704_067_200_000 + 60_000 * i)
    producer.close()
    sample = read(MemoryConsumer(cluster, "orders"), "orders", "earliest", 100, 5.0, CLOCK)
    return attempt(consumer_in(folder, **attributes), sample, 1_704_200_000_000)


def test_rows_windows_and_rejects_are_those_of_ingestion(tmp_path: Path) -> None:
    trial = tried(tmp_path, b'{"id": 1}', b"{", b'{"id": "x"}', None)
    assert (trial.records, trial.rows.num_rows, trial.dead_letters) == (4, 2, 2)
    assert trial.windows == {"2024-01-01": 2}
    assert sorted(trial.rows["_tombstone"].to_pylist()) == [False, True]


def test_a_reason_comes_with_the_place_and_the_value_of_an_example(tmp_path: Path) -> None:
    [rejected] = tried(tmp_path, b'{"id": 1}', b'{"id": "x"}').rejected
    assert (rejected.count, rejected.partition, rejected.offset, rejected.value) == (1, 1, 0, '{"id": "x"}')


def test_records_of_other_tables_are_passed_over(tmp_path: Path) -> None:
    trial = tried(tmp_path, b'{"id": 1}', b'{"id": 2}', where={"column": "id", "in": [1]})
    assert (trial.rows.num_rows, trial.passed_over, trial.dead_letters) == (1, 1, 0)


def test_nothing_is_written(tmp_path: Path) -> None:
    tried(tmp_path, b'{"id": 1}')
    assert not list(tmp_path.iterdir())
