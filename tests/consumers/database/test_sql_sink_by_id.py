"""The sink that remembers ids: repeats are skipped, for as long as it promises."""

import pyarrow as pa
import pytest
from sqlalchemy import Engine, select

from consumers.database.tables import DEAD_LETTERS, SEEN_IDS, create_tables
from consumers.database.writes import append
from consumers.errors import TaskFailed
from consumers.processing.context import Surroundings
from consumers.processing.strategies.protocol import Message
from consumers.processing.strategies.sql_sink_by_id import SqlSinkById
from consumers.processing.strategies.sql_transactions import SqlBatch
from consumers.types import OffsetRange, TopicPartition
from tests.consumers.database.parts import LINES, OTHER, TP, Told, answer_lost, contents, ids, message, surroundings
from tests.consumers.parts import records

EACH = SqlBatch(max_records=1)


def named(batch: pa.RecordBatch) -> list[str]:
    """The value is the id."""
    return [value.decode() for value in batch["value"].to_pylist()]


def rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    return [{"id": int(value), "text": "t"} for value in batch["value"].to_pylist()]


def sink(engine: Engine, told: Told | None = None, around: Surroundings | None = None, **more: object) -> SqlSinkById:
    create_tables(engine, LINES)
    write = append(LINES, rows)
    return SqlSinkById(engine, "c", named, write, told or Told(), around or surroundings(), **more)  # type: ignore[arg-type]


def read(values: list[int], first: int = 0, tp: TopicPartition = TP) -> Message[pa.RecordBatch]:
    batch = records([b"%d" % value for value in values], first, tp.partition)
    return Message(batch, {tp: OffsetRange(first, first + len(values))}, (batch,))


def test_records_that_are_read_again_are_written_once(engine: Engine) -> None:
    told = Told()
    for _ in range(2):  # as after a crash between the write and the group's commit
        ours = sink(engine, told)
        ours.submit(read([1, 2, 3]))
        assert ours.flush(0)
    again = sink(engine, told)
    again.submit(read([3, 4], first=2))
    assert again.flush(0)
    assert ids(engine) == [1, 2, 3, 4]
    assert [commit[TP] for commit in told.commits] == [OffsetRange(0, 3), OffsetRange(0, 3), OffsetRange(2, 4)]


def test_of_two_records_with_one_id_the_first_is_written_also_within_a_transaction(engine: Engine) -> None:
    ours = sink(engine)
    ours.submit(read([1, 1, 2]))
    ours.submit(read([2, 3], first=3))
    ours.flush(0)
    assert ids(engine) == [1, 2, 3]


def test_partitions_and_consumers_have_ids_of_their_own(engine: Engine) -> None:
    ours = sink(engine)
    ours.submit(read([1]))
    ours.submit(read([1], tp=OTHER))
    ours.flush(0)
    theirs = SqlSinkById(engine, "other", named, append(LINES, rows), Told(), surroundings())
    theirs.submit(read([1]))
    theirs.flush(0)
    assert ids(engine) == [1, 1, 1]


def test_a_zombie_repeats_nothing(engine: Engine) -> None:
    zombie, successor = sink(engine), sink(engine)
    zombie.submit(read([1, 2]))
    successor.submit(read([1, 2, 3]))
    successor.flush(0)
    assert zombie.flush(0)
    assert ids(engine) == [1, 2, 3]


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_without_an_answer_is_repeated_without_effect(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    told = Told()
    ours = sink(engine, told)
    ours.submit(read([1, 2]))
    answer_lost(engine, monkeypatch, committed=committed)
    assert ours.flush(100)
    assert (ids(engine), told.commits) == ([1, 2], [{TP: OffsetRange(0, 2)}])


def test_ids_that_are_far_behind_are_forgotten_and_only_those(engine: Engine) -> None:
    ours = sink(engine, remember_offsets=3, batch=EACH)
    for offset in range(6):
        ours.submit(read([offset], first=offset))
    with engine.connect() as connection:
        assert sorted(connection.execute(select(SEEN_IDS.c.offset)).scalars()) == [3, 4, 5]
    late = sink(engine, remember_offsets=3, batch=EACH)
    late.submit(read([2, 3], first=2))
    assert ids(engine) == [0, 1, 2, 2, 3, 4, 5]  # the price: what is forgotten is written again


def test_old_ids_are_forgotten(engine: Engine) -> None:
    around = surroundings()
    ours = sink(engine, around=around, remember_seconds=100.0, batch=EACH)
    ours.submit(read([0]))
    around.clock.sleep(70)
    ours.submit(read([1], first=1))
    around.clock.sleep(70)
    ours.submit(read([2], first=2))
    with engine.connect() as connection:
        assert sorted(connection.execute(select(SEEN_IDS.c.offset)).scalars()) == [1, 2]


def test_many_ids_are_told_apart_in_one_transaction(engine: Engine) -> None:
    for first in (0, 2_000):
        ours = sink(engine)
        ours.submit(read(list(range(first, first + 4_000)), first=first))
        ours.flush(0)
    assert ids(engine) == list(range(6_000))


def test_dead_letters_that_come_again_are_there_once(engine: Engine) -> None:
    for _ in range(2):
        ours = sink(engine)
        rejected = message(0, 2, reject=[1])
        ours.submit(rejected.with_payload(rejected.source[0].slice(0, 0)))
        ours.flush(0)
    assert [letter["offset"] for letter in contents(engine, DEAD_LETTERS)] == [1]


def test_a_function_that_gives_no_id_for_each_record_ends_the_run(memory: Engine) -> None:
    ours = SqlSinkById(memory, "c", lambda batch: [], append(LINES, rows), Told(), surroundings())
    ours.submit(read([1, 2]))
    with pytest.raises(TaskFailed, match=r"0 ids for 2 records.*offsets 0 \[0, 2\)"):
        ours.flush(0)
