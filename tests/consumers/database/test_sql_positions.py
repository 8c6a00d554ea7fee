"""Positions in a database: who may take partitions over, and who may move them."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import URL, Engine, create_engine, create_mock_engine, inspect, select

from consumers.database.positions import SqlPositions
from consumers.database.tables import LOSSES
from consumers.errors import ConfigError, OwnershipLost, StorageError
from consumers.processing.positions import PositionStore
from consumers.processing.starts import Start
from consumers.types import OffsetRange, Position, TopicPartition, topic_hash
from tests.consumers.database.parts import OTHER, TP, member, stands, take


def test_it_is_a_position_store(memory: Engine) -> None:
    store: PositionStore = member(memory)
    assert store.known_topic("t") is None


def test_a_partition_that_nobody_has_taken_has_no_offset(engine: Engine) -> None:
    assert member(engine).positions([TP]) == {TP: Position(None, 0)}


def test_taking_over_writes_the_start_and_raises_the_epoch(engine: Engine) -> None:
    for _ in range(3):
        take(member(engine), TP, OTHER, start=5)
    assert stands(engine) == {0: (5, 3), 1: (5, 3)}


def test_of_two_that_saw_the_same_one_takes_over(engine: Engine) -> None:
    first, second = member(engine), member(engine)
    seen, starts = first.positions([TP, OTHER]), {TP: Start(0), OTHER: Start(0)}
    first.acquire(seen, starts, "id")
    with pytest.raises(OwnershipLost):
        second.acquire(seen, starts, "id")
    assert stands(engine) == {0: (0, 1), 1: (0, 1)}


def test_a_takeover_of_several_partitions_is_all_or_nothing(engine: Engine) -> None:
    first, second = member(engine), member(engine)
    seen = first.positions([TP, OTHER])
    take(second, OTHER)
    with pytest.raises(OwnershipLost):
        first.acquire(seen, {TP: Start(0), OTHER: Start(0)}, "id")
    assert stands(engine) == {1: (0, 1)}


def test_an_older_owner_can_move_nothing(engine: Engine) -> None:
    old, new = member(engine), member(engine)
    take(old)
    take(new)
    with (
        pytest.raises(OwnershipLost, match=r"offset 0 in epoch 2 \(member m\), this member at 0 in epoch 1"),
        engine.begin() as c,
    ):
        old.advance(c, {TP: OffsetRange(0, 5)})
    assert stands(engine) == {0: (0, 2)}


def test_a_position_moves_only_from_where_it_stands(engine: Engine) -> None:
    ours = member(engine)
    take(ours, start=10)
    with pytest.raises(OwnershipLost), engine.begin() as connection:
        ours.advance(connection, {TP: OffsetRange(5, 15)})
    assert stands(engine) == {0: (10, 1)}


def test_one_position_that_cannot_move_holds_all_of_them(engine: Engine) -> None:
    ours = member(engine)
    take(ours, TP, OTHER)
    take(member(engine), OTHER)
    with pytest.raises(OwnershipLost), engine.begin() as connection:
        ours.advance(connection, {TP: OffsetRange(0, 5), OTHER: OffsetRange(0, 5)})
    assert stands(engine) == {0: (0, 1), 1: (0, 2)}


def test_a_released_partition_cannot_be_moved(engine: Engine) -> None:
    ours = member(engine)
    take(ours)
    ours.release(frozenset({TP}))
    with pytest.raises(OwnershipLost), engine.begin() as connection:
        ours.advance(connection, {TP: OffsetRange(0, 5)})


def test_consumers_do_not_see_each_other(engine: Engine) -> None:
    take(SqlPositions(engine, "one", "m"), start=7)
    assert SqlPositions(engine, "two", "m").positions([TP]) == {TP: Position(None, 0)}


def test_the_topic_is_known_to_a_member_that_asks_for_a_partition_without_a_position(engine: Engine) -> None:
    take(member(engine), TP, topic_id="id")
    later = member(engine)
    later.positions([OTHER])
    assert later.known_topic("t") == topic_hash("id")


def test_a_recreated_topic_is_known_by_its_new_id_although_it_has_fewer_partitions(engine: Engine) -> None:
    take(member(engine), TP, OTHER, topic_id="old")
    ours = member(engine)
    take(ours, TP, topic_id="new")
    ours.positions([TP])
    assert ours.known_topic("t") == topic_hash("new")


def test_a_broker_that_knows_no_ids_does_not_make_the_topic_unknown(engine: Engine) -> None:
    take(member(engine), topic_id="id")
    ours = member(engine)
    take(ours, topic_id="")
    ours.positions([TP])
    assert ours.known_topic("t") == topic_hash("id")


def test_offsets_that_are_used_again_are_marked_by_the_epoch_of_that_takeover(engine: Engine) -> None:
    take(member(engine), start=10)
    ours = member(engine)
    ours.acquire(ours.positions([TP]), {TP: Start(3, OffsetRange(3, 10), cut=True)}, "id")
    take(ours)
    assert ours.positions([TP]) == {TP: Position(3, 3, cut=2)}


def test_lost_offsets_are_recorded_with_the_takeover(engine: Engine) -> None:
    take(member(engine), start=10)
    ours = member(engine)
    ours.acquire(ours.positions([TP]), {TP: Start(15, OffsetRange(10, 15))}, "id")
    with engine.connect() as connection:
        lost = connection.execute(select(LOSSES)).one()
    assert (lost.consumer, lost.topic, lost.partition, lost.epoch) == ("c", "t", 0, 2)
    assert (lost.first_lost, lost.next_kept) == (10, 15)


def test_members_that_start_at_once_make_the_tables_once(sql_url: URL) -> None:
    barrier = threading.Barrier(4)

    def start(number: int) -> None:
        engine = create_engine(sql_url)
        barrier.wait()
        member(engine, str(number))
        engine.dispose()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(start, range(4)))
    engine = create_engine(sql_url)
    assert set(inspect(engine).get_table_names()) == {"weir_positions", "weir_losses"}
    engine.dispose()


def test_a_database_that_cannot_compare_and_set_as_needed_is_refused() -> None:
    with pytest.raises(ConfigError, match="mssql is not supported"):
        SqlPositions(create_mock_engine("mssql+pyodbc://", lambda *_: None), "c", "m")  # type: ignore[arg-type]


def test_an_error_names_the_database_and_not_its_password() -> None:
    engine = create_engine("postgresql+psycopg://me:secret@127.0.0.1:1/data?password=secret&connect_timeout=1")
    with pytest.raises(StorageError) as raised:
        member(engine)
    text = str(raised.value)
    assert "database data on 127.0.0.1:1" in text and "start again" in text
    assert "secret" not in text


def _race(
    url: URL,
    rounds: int,
    begin: "threading.Barrier",
    fought: "multiprocessing.synchronize.Event",
    out: "multiprocessing.SimpleQueue[tuple[int, int]]",
) -> None:
    """Add to the position at least `rounds` times, and until one has lost; taking over when somebody else has."""
    engine = create_engine(url)
    ours, tp, won, lost = SqlPositions(engine, "c", "racer"), TopicPartition("t", 0), 0, 0
    begin.wait(60)
    while won < rounds or not fought.is_set():
        try:
            at = take(ours, tp)[tp]
            while won < rounds or not fought.is_set():
                with engine.begin() as connection:
                    ours.advance(connection, {tp: OffsetRange(at, at + 1)})
                won, at = won + 1, at + 1
        except OwnershipLost:
            lost += 1
            fought.set()
    engine.dispose()
    out.put((won, lost))


def test_processes_that_fight_over_a_partition_move_it_once_for_each_commit(sql_url: URL) -> None:
    spawn = multiprocessing.get_context("spawn")
    begin, fought, out = spawn.Barrier(2), spawn.Event(), spawn.SimpleQueue()
    racers = [spawn.Process(target=_race, args=(sql_url, 50, begin, fought, out)) for _ in range(2)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
        racer.kill()
    results = [out.get() for _ in racers if not out.empty()]
    engine = create_engine(sql_url)
    assert stands(engine)[0][0] == sum(won for won, _ in results) >= 100
    assert sum(lost for _, lost in results) > 0
    engine.dispose()
