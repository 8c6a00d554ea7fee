"""The sink: rows, dead letters and positions together or not at all, on SQLite and PostgreSQL."""

import base64
import json
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from consumers.database.tables import DEAD_LETTERS, create_tables
from consumers.database.writes import append, apply, upsert
from consumers.errors import FatalError, OwnershipLost, StorageError, TaskFailed
from consumers.processing.strategies.protocol import Message
from consumers.processing.strategies.sql_transactions import SqlBatch
from consumers.types import OffsetRange, topic_hash
from tests.consumers.database.parts import (
    LINES,
    OTHER,
    ROWS,
    TP,
    Told,
    both,
    contents,
    ids,
    member,
    message,
    payload_of,
    sink,
    stands,
    surroundings,
    take,
)


def test_rows_and_position_are_there_together_and_then_the_engine_is_told(engine: Engine) -> None:
    positions, told = member(engine), Told()
    take(positions, TP, OTHER)
    ours = sink(positions, told)
    ours.submit(both(message(0, 3), message(0, 2, OTHER)))
    assert ids(engine) == [] and told.commits == []
    assert ours.flush(0)
    assert ids(engine) == [0, 0, 1, 1, 2]
    assert stands(engine) == {0: (3, 1), 1: (2, 1)}
    assert told.commits == [{TP: OffsetRange(0, 3), OTHER: OffsetRange(0, 2)}]


@pytest.mark.parametrize("limit", [SqlBatch(max_records=5), SqlBatch(max_bytes=1)])
def test_a_full_buffer_is_written_at_once(memory: Engine, limit: SqlBatch) -> None:
    positions, told = member(memory), Told()
    take(positions)
    sink(positions, told, batch=limit).submit(message(0, 5))
    assert told.commits == [{TP: OffsetRange(0, 5)}]


def test_an_old_buffer_is_written_by_a_poll(memory: Engine) -> None:
    positions, told, around = member(memory), Told(), surroundings()
    take(positions)
    ours = sink(positions, told, around=around)
    ours.submit(message(0, 1))
    around.clock.sleep(0.9)
    ours.poll()
    assert not told.commits
    around.clock.sleep(0.2)
    ours.poll()
    assert told.commits == [{TP: OffsetRange(0, 1)}]


def test_messages_without_rows_move_positions(memory: Engine) -> None:
    positions = member(memory)
    take(positions)
    ours = sink(positions)
    ours.submit(Message([], {TP: OffsetRange(0, 7)}))
    ours.flush(0)
    assert (ids(memory), stands(memory)) == ([], {0: (7, 1)})


def test_what_is_discarded_is_not_written(memory: Engine) -> None:
    positions, told = member(memory), Told()
    take(positions)
    ours = sink(positions, told)
    ours.submit(message(0, 5))
    ours.discard()
    assert ours.flush(0) and not told.commits
    ours.submit(message(0, 2))
    ours.close()
    assert ids(memory) == []


def test_dead_letters_are_whole_and_of_the_topic_that_was_taken_over(engine: Engine) -> None:
    positions = member(engine)
    take(positions, topic_id="id")
    ours = sink(positions)
    rejected = message(0, 3, reject=[1])
    headed = rejected.source[0].to_pylist()
    headed[1]["headers"] = [{"key": "trace", "value": b"\x00\xff"}, {"key": "empty", "value": None}]
    source = (type(rejected.source[0]).from_pylist(headed, schema=rejected.source[0].schema),)
    ours.submit(Message(rejected.payload, rejected.ranges, source, rejected.rejected))
    ours.flush(0)
    (letter,) = contents(engine, DEAD_LETTERS)
    assert (letter["consumer"], letter["topic"], letter["partition"], letter["offset"]) == ("c", "t", 0, 1)
    assert (letter["key"], letter["value"], letter["reason"]) == (b"k1", b"v1", "no good")
    assert letter["timestamp_ms"] == 1_356_998_400_000
    assert json.loads(letter["headers"]) == [["trace", base64.b64encode(b"\x00\xff").decode()], ["empty", None]]
    assert (letter["topic_id_hash"], letter["cut"]) == (topic_hash("id"), 0)


def test_an_operator_who_moves_a_position_back_gets_each_dead_letter_once(engine: Engine) -> None:
    for _ in range(2):
        positions = member(engine)
        take(positions)
        ours = sink(positions)
        ours.submit(message(0, 3, reject=[1]))
        ours.flush(0)
        with engine.begin() as connection:
            connection.execute(text("UPDATE weir_positions SET next_offset = 0"))
    assert [letter["offset"] for letter in contents(engine, DEAD_LETTERS)] == [1]


def test_an_upsert_replaces_and_of_one_batch_the_last_stays(engine: Engine) -> None:
    create_tables(engine, ROWS)
    positions = member(engine)
    take(positions)
    ours = sink(positions, write=upsert(ROWS, ["id"]))
    for first, rows in ((0, "ab"), (2, "cd")):
        ours.submit(
            Message([{"id": n % 2, "text": each} for n, each in enumerate(rows * 2)], {TP: OffsetRange(first, first + 2)})
        )
    ours.flush(0)
    assert contents(engine, ROWS) == [{"id": 0, "text": "c"}, {"id": 1, "text": "d"}]
    ours.submit(Message([{"id": 1, "text": "later"}], {TP: OffsetRange(4, 5)}))
    ours.flush(0)
    assert contents(engine, ROWS) == [{"id": 0, "text": "c"}, {"id": 1, "text": "later"}]


def test_an_upsert_leaves_columns_that_the_rows_do_not_have(engine: Engine) -> None:
    create_tables(engine, ROWS)
    positions = member(engine)
    take(positions)
    ours = sink(positions, write=upsert(ROWS, ["id"]))
    for offset, row in enumerate(({"id": 1, "text": "kept"}, {"id": 1}, {"id": 2})):
        ours.submit(Message([row], {TP: OffsetRange(offset, offset + 1)}))
        ours.flush(0)
    assert contents(engine, ROWS) == [{"id": 1, "text": "kept"}, {"id": 2, "text": None}]


def test_an_arrow_batch_is_rows_already(engine: Engine) -> None:
    create_tables(engine, ROWS)
    positions = member(engine)
    take(positions)
    ours = sink(positions, write=append(ROWS))
    ours.submit(Message(payload_of(3), {TP: OffsetRange(0, 3)}))
    ours.flush(0)
    assert contents(engine, ROWS) == payload_of(3).to_pylist()


def test_rows_with_different_columns_are_refused_and_nothing_is_committed(memory: Engine) -> None:
    positions = member(memory)
    take(positions)
    ours = sink(positions)
    ours.submit(Message([{"id": 1, "text": "a"}, {"id": 2}], {TP: OffsetRange(0, 2)}))
    with pytest.raises(TaskFailed, match=r"same columns.*topic t, partitions and offsets 0 \[0, 2\)"):
        ours.flush(0)
    assert (ids(memory), stands(memory)) == ([], {0: (0, 1)})


def test_a_function_that_raises_ends_the_run_and_leaves_nothing_of_its_transaction(engine: Engine) -> None:
    positions = member(engine)
    take(positions)

    def books(connection: Connection, payload: Any) -> None:
        append(LINES)(connection, [payload])
        raise RuntimeError("no such account")

    create_tables(engine, LINES)
    ours = sink(positions, write=apply(books))
    ours.submit(message(0, 2))
    with pytest.raises(TaskFailed, match=r"RuntimeError: no such account, on topic t, partitions and offsets 0 \[0, 2\)"):
        ours.flush(0)
    assert (ids(engine), stands(engine)) == ([], {0: (0, 1)})


def test_a_row_that_the_table_refuses_stops_with_what_to_do_and_without_the_row_s_statement(engine: Engine) -> None:
    create_tables(engine, ROWS)
    positions = member(engine)
    take(positions)
    ours = sink(positions, write=append(ROWS))
    ours.submit(Message([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}], {TP: OffsetRange(0, 2)}))
    with pytest.raises(StorageError, match=r"offsets 0 \[0, 2\).*Nothing of it was committed.*mend the table") as raised:
        ours.flush(0)
    assert "INSERT" not in str(raised.value)
    assert (contents(engine, ROWS), stands(engine)) == ([], {0: (0, 1)})


def test_the_topic_is_asked_for_before_each_transaction(memory: Engine) -> None:
    positions, asked = member(memory), []
    take(positions, topic_id="first")

    def same(topic_id: str) -> None:
        asked.append(topic_id)
        raise OwnershipLost("recreated")

    ours = sink(positions, same_topic=same)
    ours.submit(message(0, 1))
    with pytest.raises(OwnershipLost, match="recreated"):
        ours.flush(0)
    assert (asked, ids(memory)) == (["first"], [])


def test_a_sink_with_other_positions_than_the_run_says_so_and_blames_nobody(memory: Engine) -> None:
    take(member(memory))
    ours = sink(member(memory))
    ours.submit(message(0, 1))
    with pytest.raises(FatalError, match=r"t/0 was never taken over through the SqlPositions that the sink has"):
        ours.flush(0)


@pytest.mark.parametrize("key", [["nope"], []])
def test_an_upsert_by_a_key_that_the_table_has_not_is_refused(key: list[str]) -> None:
    with pytest.raises(ValueError, match="rows"):
        upsert(ROWS, key)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "x"}, "a row for table rows has no column 'id'"),
        ({"id": 1, "nope": 2}, "table rows has no column 'nope'.*id, text"),
    ],
)
def test_a_row_that_does_not_fit_names_the_table_and_the_column(memory: Engine, row: dict[str, object], said: str) -> None:
    create_tables(memory, ROWS)
    positions = member(memory)
    take(positions)
    ours = sink(positions, write=upsert(ROWS, ["id"], lambda _payload: [row]))
    ours.submit(message(0, 1))
    with pytest.raises(TaskFailed, match=said):
        ours.flush(0)
