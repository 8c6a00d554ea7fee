"""Building a window again: what is replaced, what stays, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from consumers.errors import DataLoss, StorageError
from consumers.processing.backfill import source
from consumers.staging import places
from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from consumers.types import OffsetRange, TopicPartition
from tests.consumers.parts import TP
from tests.consumers.processing.backfill.topic import FIRST, SECOND, THIRD, Topic

STRICT = {"a": {"type": "long", "nullable": False}}


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    made = Topic(tmp_path)
    made.produce(0, 1, b"bad", 3)
    made.produce(4, 5, day=1)
    made.stage()
    return made


def test_a_window_that_holds_what_its_records_give_is_not_touched(topic: Topic) -> None:
    version = topic.version
    found = topic.rebuild(FIRST)
    assert (found.commit, found.made.added, found.made.removed, found.made.seen) == (None, 0, 0, 4)
    assert topic.version == version


def test_records_are_decoded_by_todays_definition_and_positions_stand(topic: Topic) -> None:
    topic.defined(schema={"a": "long", "b": {"type": "long", "path": "a"}})
    found = topic.rebuild(FIRST)
    assert topic.rows(FIRST, "_offset", "a", "b") == [(0, 0, 0), (1, 1, 1), (3, 3, 3)]
    assert topic.rows(SECOND) == [4, 5]
    assert committed_positions(topic.consumer.staged, "c", "t", 1) == {TP: 6}
    assert found.commit is not None
    newest = commits(topic.consumer.staged)[-1]
    assert (newest.kind, list(newest.windows), newest.rows, newest.ranges) == ("rewrite", [FIRST], 3, {TP: OffsetRange(0, 4)})


def test_a_dead_letter_that_is_valid_today_becomes_a_row_and_is_resolved(tmp_path: Path) -> None:
    topic = Topic(tmp_path, schema=STRICT)
    topic.produce(0, b"{}", 2)
    topic.stage()
    assert topic.dead() == [(1, False)]
    topic.defined()
    assert topic.rebuild(FIRST).made.added == 1
    assert topic.rows(FIRST) == [0, 1, 2] and topic.dead() == [(1, True)]


def test_a_row_that_is_invalid_today_becomes_a_dead_letter(topic: Topic) -> None:
    topic.produce(b"{}")
    topic.stage()
    assert topic.rows(FIRST) == [0, 1, 3, 6]
    topic.defined(schema=STRICT)
    found = topic.rebuild(FIRST)
    assert (found.made.removed, found.made.added) == (1, 0)
    assert topic.rows(FIRST) == [0, 1, 3]
    assert topic.dead() == [(2, False), (6, False)]
    assert topic.rebuild(FIRST).commit is None


def test_rows_that_somebody_deleted_or_changed_come_back_only_where_an_offset_names_them(topic: Topic) -> None:
    DeltaTable(topic.consumer.staged).delete("_offset = 1")
    assert topic.rebuild(FIRST).commit is None
    found = topic.rebuild(FIRST, offsets={TP: OffsetRange(0, 100)})
    assert found.made.added == 1 and topic.rows(FIRST) == [0, 1, 3]
    assert topic.rows(SECOND) == [4, 5] and topic.dead() == [(2, False)]


def test_a_window_whose_records_retention_took_is_refused_and_left_as_it_was(topic: Topic) -> None:
    topic.cluster.delete_records({TP: 2})
    version = topic.version
    with pytest.raises(DataLoss, match=r"window 2013-01-01 of c: .* t/0: 0-1\. The window is as it was"):
        topic.rebuild(FIRST)
    assert topic.version == version
    assert topic.rebuild(SECOND).commit is None


def test_partial_takes_what_is_there_keeps_the_rest_and_records_the_loss(topic: Topic) -> None:
    topic.cluster.delete_records({TP: 2})
    topic.defined(schema={"a": "long", "b": {"type": "long", "path": "a"}})
    found = topic.rebuild(FIRST, partial=True)
    assert topic.rows(FIRST, "_offset", "a", "b") == [(0, 0, None), (1, 1, None), (3, 3, 3)]
    assert (found.made.kept, found.made.lost) == (2, {TP: OffsetRange(0, 2)})
    assert commits(topic.consumer.staged)[-1].lost == {TP: OffsetRange(0, 2)}


def test_offsets_of_a_topic_that_was_created_again_never_replace_the_old_ones_rows(topic: Topic) -> None:
    topic.cluster.delete_topic("t")
    topic.cluster.create_topic("t", 1)
    topic.produce(100, 101, 102, 103, 104, 105, 106)
    with pytest.raises(DataLoss, match="t/0: 0-1, 3"):
        topic.rebuild(FIRST)
    topic.defined(on_data_loss="record")
    topic.stage()
    with pytest.raises(DataLoss, match="t/0: 0-1, 3"):
        topic.rebuild(FIRST)
    found = topic.rebuild(FIRST, partial=True)
    assert found.commit is None and found.made.kept == 3
    assert topic.rows(FIRST, "a") == [0, 1, 3, 100, 101, 102, 103, 104, 105, 106]


def test_windows_older_than_the_first_start_are_loaded_and_loaded_once(tmp_path: Path) -> None:
    topic = Topic(tmp_path, start="2013-01-03T00:00:00Z")
    topic.produce(0, 1, b"bad")
    topic.produce(3, day=1)
    topic.produce(4, day=0)
    topic.produce(5, 6, day=2)
    topic.stage()
    assert topic.rows(THIRD) == [5, 6]
    assert topic.rebuild(FIRST).made.added == 3
    assert topic.rows(FIRST) == [0, 1, 4] and topic.dead() == [(2, False)]
    assert topic.rebuild(FIRST).commit is None and topic.rebuild(THIRD).commit is None
    assert topic.rebuild(SECOND).made.added == 1
    assert set(topic.places().values()) == {1}


def test_an_older_window_is_refused_where_retention_may_have_taken_some_of_it(tmp_path: Path) -> None:
    topic = Topic(tmp_path, start="2013-01-03T00:00:00Z")
    topic.produce(0, 1)
    topic.produce(2, day=1)
    topic.produce(3, day=2)
    topic.stage()
    topic.cluster.delete_records({TP: 1})
    with pytest.raises(DataLoss, match="t/0: 0-0, which may have held records of it"):
        topic.rebuild(FIRST)
    assert topic.rebuild(SECOND).made.added == 1
    assert topic.rebuild(FIRST, partial=True).made.lost == {TP: OffsetRange(0, 1)}
    assert topic.rows(FIRST) == [1]


def test_a_record_that_belongs_to_another_window_today_stays_where_it_is(tmp_path: Path) -> None:
    by_field = {"every": "day", "field": "at"}
    topic = Topic(tmp_path, schema={"a": "long", "at": {"type": "timestamp", "path": "x"}}, window=by_field)
    topic.produce(b'{"a": 1, "x": "2013-01-01T05:00:00Z", "y": "2013-01-02T05:00:00Z"}')
    topic.stage()
    topic.defined(schema={"a": "long", "at": {"type": "timestamp", "path": "y"}}, window=by_field)
    found = topic.rebuild(FIRST)
    assert (found.commit, found.made.left) == (None, 1)
    assert topic.rebuild(SECOND, offsets={TP: OffsetRange(0, 1)}).commit is None
    assert topic.rows(FIRST) == [0] and topic.rows(SECOND) == []


def test_nothing_is_built_before_anything_was_staged(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="consumer c has not begun to stage"):
        Topic(tmp_path).rebuild(FIRST)


def test_records_that_are_far_apart_and_in_several_partitions_are_all_found(tmp_path: Path) -> None:
    topic = Topic(tmp_path, partitions=3, schema=STRICT)
    for partition in (0, 2):
        topic.produce(1, partition=partition)
        topic.produce(*range(2500), day=1, partition=partition)
        topic.produce(2, 3, partition=partition)
    topic.produce(4, partition=1)
    topic.stage()
    topic.defined(schema={"a": "long"})
    assert topic.rebuild(FIRST).made.seen == 7
    assert topic.rows(FIRST, "_partition", "_offset") == [(0, 0), (0, 2501), (0, 2502), (1, 0), (2, 0), (2, 2501), (2, 2502)]
    assert topic.rebuild(SECOND, offsets={TopicPartition("t", 2): OffsetRange(0, 9999)}).commit is None


def test_a_consumer_that_keeps_bytes_needs_no_topic_to_build_its_windows_again(tmp_path: Path) -> None:
    topic = Topic(tmp_path, keep_raw=True)
    topic.produce(0, None, b"bad", 3)
    topic.stage()
    assert topic.rows(FIRST, "_offset", "_value") == [(0, b'{"a": 0}'), (1, None), (3, b'{"a": 3}')]
    topic.cluster.delete_topic("t")
    topic.defined(keep_raw=True, schema={"a": "long", "b": {"type": "long", "path": "a"}})
    assert topic.rebuild(FIRST).made.lost == {}
    assert topic.rows(FIRST, "_offset", "b", "_value") == [(0, 0, b'{"a": 0}'), (1, None, None), (3, 3, b'{"a": 3}')]


def test_rows_of_before_bytes_were_kept_come_from_the_topic_and_have_theirs_then(topic: Topic) -> None:
    topic.defined(keep_raw=True)
    topic.produce(6)
    topic.stage()
    assert topic.rebuild(FIRST).commit is not None
    assert topic.rows(FIRST, "_value") == [b'{"a": 0}', b'{"a": 1}', b'{"a": 3}', b'{"a": 6}']
    topic.cluster.delete_records({TP: 7})
    assert topic.rebuild(FIRST).commit is None


def test_records_that_arrive_in_many_batches_are_not_compared_with_all_of_the_window_each_time(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.produce(*range(100))
    topic.stage()
    compared = []

    def counting(rows: pa.Table) -> Iterator[places.Life]:
        compared.append(rows.num_rows)
        return by_life(rows)

    by_life = places.by_life
    monkeypatch.setattr(places, "by_life", counting)
    monkeypatch.setattr(source, "_RECORDS", 4)
    topic.rebuild(FIRST)
    assert sum(compared) < 20 * len(topic.rows(FIRST))
