import pytest

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryConsumer, MemoryProducer
from consumers.clock import ManualClock
from consumers.types import TopicPartition
from orchestration.proposal.sample import Sample, Start, both_ends, fair_shares, read

HELD = {0: 50, 1: 3, 2: 0}


@pytest.fixture
def cluster() -> MemoryCluster:
    found = MemoryCluster(ManualClock(1_700_000_000))
    MemoryAdmin(found).create_topic("t", len(HELD))
    producer = MemoryProducer(found)
    for partition, count in HELD.items():
        for number in range(count):
            producer.send("t", b"%d" % number, partition=partition)
    producer.close()
    return found


def sample(cluster: MemoryCluster, start: Start, count: int, seconds: float = 5.0) -> Sample:
    return read(MemoryConsumer(cluster, "t"), "t", start, count, seconds, cluster.clock)


def offsets(found: Sample) -> dict[int, list[int]]:
    rows = found.records.to_pydict()
    held: dict[int, list[int]] = {}
    for partition, offset in zip(rows["partition"], rows["offset"], strict=True):
        held.setdefault(partition, []).append(offset)
    return held


def test_what_a_small_partition_does_not_have_comes_from_the_others(cluster: MemoryCluster) -> None:
    assert offsets(sample(cluster, "earliest", 10)) == {0: list(range(7)), 1: [0, 1, 2]}


def test_the_latest_records_are_the_last_of_each_partition(cluster: MemoryCluster) -> None:
    assert offsets(sample(cluster, "latest", 10)) == {0: list(range(43, 50)), 1: [0, 1, 2]}


def test_the_ranges_are_those_of_the_records(cluster: MemoryCluster) -> None:
    ranges = sample(cluster, "latest", 10).ranges
    assert {tp.partition: (r.start, r.end) for tp, r in ranges.items()} == {0: (43, 50), 1: (0, 3)}


def test_both_ends_have_each_record_once(cluster: MemoryCluster) -> None:
    found = both_ends(sample(cluster, "earliest", 40), sample(cluster, "latest", 40))
    assert found.num_rows == sum(HELD.values())


def test_no_group_is_joined(cluster: MemoryCluster) -> None:
    sample(cluster, "earliest", 10)
    assert MemoryAdmin(cluster).group_offsets("consumer", "t") == {} and cluster.members("consumer") == []


def test_it_ends_when_its_time_is_over(cluster: MemoryCluster) -> None:
    cluster.faults.delay("poll", seconds=6.0)
    cluster.faults.fail("poll")
    assert sample(cluster, "earliest", 10, seconds=5.0).total == sum(HELD.values())


def test_an_empty_topic_gives_an_empty_sample(cluster: MemoryCluster) -> None:
    MemoryAdmin(cluster).create_topic("empty")
    found = read(MemoryConsumer(cluster, "empty"), "empty", "latest", 10, 5.0, cluster.clock)
    assert found.records.num_rows == 0 and found.total == 0


def test_shares_add_up_to_what_there_is() -> None:
    sizes = {TopicPartition("t", i): size for i, size in enumerate((1, 2, 3))}
    assert sum(fair_shares(sizes, 100).values()) == 6 and sum(fair_shares(sizes, 4).values()) == 4
