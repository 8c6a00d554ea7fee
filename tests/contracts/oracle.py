"""What must have come out of a strategy, given what went in: the suite's judge. test_faulty_strategies.py shows it saying no."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from consumers.processing.strategies.protocol import Message
from consumers.types import Ranges
from tests.contracts.driver import Driver, Next, joined
from tests.contracts.strategies import PARTITIONS, Ended, Middle, Row


def expect_passed(case: Middle, driver: Driver, after: Next) -> None:
    """Everything that was read has passed, once, in order, no position ahead of its rows, each rejection where it belongs."""
    given = driver.given.keys() & set(driver.source.rows())
    wanted = [row for row in driver.source.rows(case.passes) if row not in given]
    found = [row for message in after.done for row in case.rows(message.payload)]
    assert _by_partition(found) == wanted
    _in_step(after.done, wanted, case)
    rejected = [(r.partition.partition, r.offset) for message in after.done for r in message.rejected]
    invalid = given | set(driver.source.rows(lambda value: case.rejects and value == b"bad"))
    assert sorted(rejected) == ([] if case.settles_rejected else sorted(invalid))
    _at_the_end(after.committed, driver)
    for message in after.done:
        _has_source(message)


def expect_ended(ended: Ended, driver: Driver, commits: Sequence[Ranges]) -> None:
    """Everything that was read is committed, and durable once."""
    _at_the_end(joined(commits), driver)
    if ended.rows is not None:
        assert sorted(ended.rows()) == [row for row in driver.source.rows() if row not in driver.given]


def _by_partition(rows: Iterable[Row]) -> list[Row]:
    """By partition, within it in the order in which they came."""
    return sorted(rows, key=lambda row: row[0])


def _in_step(done: Sequence[Message[Any]], wanted: Sequence[Row], case: Middle) -> None:
    """A position passes a row only together with it, or after it."""
    missing, positions = set(wanted), dict.fromkeys(range(len(PARTITIONS)), 0)
    for message in done:
        missing -= set(case.rows(message.payload))
        positions |= {tp.partition: step.end for tp, step in message.ranges.items()}
        behind = {row for row in missing if row[1] < positions[row[0]]}
        assert not behind, f"positions {positions} have passed {behind}, which came to the next step later"


def _at_the_end(committed: Ranges, driver: Driver) -> None:
    ends: Mapping[Any, int] = {tp: end for tp, end in driver.source.next.items() if end}
    assert {tp: (step.start, step.end) for tp, step in committed.items() if step.end} == {
        tp: (0, end) for tp, end in ends.items()
    }


def _has_source(message: Message[Any]) -> None:
    rows = {(r["partition"], r["offset"]) for records in message.source for r in records.to_pylist()}
    for rejection in message.rejected:
        assert (rejection.partition.partition, rejection.offset) in rows, f"{rejection} is not in its message's source"
