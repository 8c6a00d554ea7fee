"""Shadows: built beside the table, compared with it, and swapped in, by window or as a whole."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from consumers.brokers.memory import MemoryConsumer
from consumers.errors import StorageError
from consumers.processing.backfill.difference import difference
from consumers.processing.backfill.shadow import Shadow, cast_shadow
from consumers.processing.backfill.swap import swap
from consumers.processing.backfill.window import Backfill, Choices
from consumers.processing.replay import Selection, replay
from consumers.staging.positions import committed_positions
from consumers.staging.resolve import Resolver
from tests.consumers.parts import TP
from tests.consumers.processing.backfill.topic import FIRST, SECOND, Topic
from tests.killing import killed

TEXT = {"a": "string", "b": "long"}
RAW = b'{"a": 1, "b": "2013-01-02T03:00:00Z"}'


def shadow_of(topic: Topic, first: str = "", last: str = "", id_: str = "x", **choices: Any) -> Shadow:
    shadow = Shadow(topic.consumer, id_)
    backfill = Backfill(topic.consumer, lambda: MemoryConsumer(topic.cluster, "t"), topic.clock, Choices(**choices))
    for _ in cast_shadow(shadow, backfill, topic.clock, first, last):
        pass
    backfill.close()
    return shadow


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """Offsets 0 to 4: a row, a dead letter (no b), a row whose a is missing; of the next day a row and one without a."""
    made = Topic(tmp_path, schema={"a": "long", "b": {"type": "long", "nullable": False}})
    made.produce(b'{"a": 0, "b": 0}', b'{"a": 1}', b'{"b": 2}')
    made.produce(b'{"a": 3, "b": 3}', b'{"b": 4}', day=1)
    made.stage()
    made.defined(schema={"a": {"type": "long", "nullable": False}, "b": "long"})
    return made


def test_a_shadow_touches_nothing_and_says_what_would_be_otherwise(topic: Topic) -> None:
    version, places = topic.version, topic.places()
    found = difference(shadow_of(topic))
    assert (found.before, found.after, found.added, found.removed, found.moved, found.changed) == (4, 3, 1, 2, 0, 0)
    assert (topic.version, topic.places()) == (version, places)


def test_a_swap_makes_it_the_table_and_keeps_what_was_staged_since(topic: Topic) -> None:
    shadow = shadow_of(topic)
    topic.produce(b'{"a": 5, "b": 5}')
    topic.stage()
    commits = list(swap(shadow, topic.clock, "ann"))
    assert [(list(c.windows), c.why) for c in commits] == [([FIRST], "swap of shadow x"), ([SECOND], "swap of shadow x")]
    assert topic.rows(FIRST) == [0, 1, 5] and topic.rows(SECOND) == [3]
    assert topic.dead() == [(1, True), (2, False), (4, False)]
    assert committed_positions(topic.consumer.staged, "c", "t", 1) == {TP: 6}
    assert topic.rebuild(FIRST).commit is None and not shadow.tables.staged.exists()


def test_a_shadow_of_some_windows_leaves_the_others(topic: Topic) -> None:
    list(swap(shadow_of(topic, SECOND, SECOND), topic.clock, "ann"))
    assert topic.rows(FIRST) == [0, 2] and topic.rows(SECOND) == [3]


def test_changed_values_are_counted_by_column(topic: Topic) -> None:
    topic.defined(schema={"a": {"type": "long", "path": "b"}, "b": {"type": "long"}})
    found = difference(shadow_of(topic))
    assert (found.changed, found.columns) == (2, Counter({"a": 2}))


def test_another_type_is_swapped_in_as_a_whole_with_the_positions_as_they_were(topic: Topic) -> None:
    with_text = {"a": {"type": "double", "nullable": False}}
    topic.defined(schema=with_text)
    with pytest.raises(StorageError, match="shadow_c"):
        topic.rebuild(FIRST)
    shadow = shadow_of(topic)
    assert difference(shadow).changed == 0
    [commit] = swap(shadow, topic.clock, "ann")
    assert (commit.rows, commit.removed, commit.why) == (3, 4, "swap of shadow x as a whole")
    assert topic.rows(FIRST, "a") == [0.0, 1.0] and topic.rows(SECOND, "a") == [3.0]
    assert topic.dead() == [(1, True), (2, False), (4, False)]
    topic.produce(b'{"a": 5.5}')
    topic.stage()
    assert topic.rows(FIRST, "_offset", "a") == [(0, 0.0), (1, 1.0), (5, 5.5)]
    assert topic.rebuild(FIRST).commit is None


def test_other_windows_are_swapped_in_as_a_whole(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.produce(0, 1)
    topic.produce(2, day=1)
    topic.stage()
    topic.defined(window="hour")
    shadow = shadow_of(topic)
    assert difference(shadow).moved == 3
    list(swap(shadow, topic.clock, "ann"))
    assert topic.rows("2013-01-01-00") == [0, 1] and topic.rows("2013-01-02-00") == [2] and topic.rows(FIRST) == []


def test_a_whole_swap_is_refused_once_more_was_staged(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.produce(0, 1)
    topic.stage()
    day = topic.consumer
    topic.defined(window="hour")
    shadow = shadow_of(topic)
    topic.consumer = day
    topic.produce(2)
    topic.stage()
    with pytest.raises(StorageError, match=r"1 offsets were staged since\. Nothing was changed\. Stop ingestion"):
        list(swap(shadow, topic.clock, "ann"))
    assert topic.rows(FIRST) == [0, 1, 2]


def test_a_swap_is_refused_once_somebody_else_rewrote_the_table(topic: Topic) -> None:
    shadow = shadow_of(topic)
    assert topic.rebuild(FIRST).commit is not None
    with pytest.raises(StorageError, match="changed after the shadow 'x' was begun"):
        list(swap(shadow, topic.clock, "ann"))


def test_a_replay_between_two_windows_of_a_swap_ends_it_and_keeps_its_rows(topic: Topic) -> None:
    topic.produce(b"{}", day=1)
    topic.stage()
    commits = swap(shadow_of(topic), topic.clock, "ann")
    assert list(next(commits).windows) == [FIRST]
    lenient = topic.defined(schema={"a": "long", "b": "long"})
    assert replay(lenient, Selection(), None, topic.clock).fixed == 2
    with pytest.raises(StorageError, match=r"replay in version \d+"):
        list(commits)
    assert topic.rows(FIRST) == [0, 1, 2] and topic.rows(SECOND) == [3, 4, 5]


def test_a_shadow_whose_name_begins_like_anothers_is_no_part_of_its_swap(topic: Topic) -> None:
    shadow, longer = shadow_of(topic, id_="x"), shadow_of(topic, id_="x2")
    assert list(swap(longer, topic.clock, "ann"))
    with pytest.raises(StorageError, match="changed after the shadow 'x' was begun"):
        list(swap(shadow, topic.clock, "ann"))


@pytest.mark.parametrize(
    "schema", [{"a": {"type": "long", "nullable": False}, "b": "long"}, {"a": {"type": "double", "nullable": False}}]
)
@pytest.mark.parametrize("step", ["append", "conclude", "mark"])
def test_a_swap_killed_on_its_way_is_finished_by_the_next(topic: Topic, schema: Any, step: str) -> None:
    topic.defined(schema=schema)
    shadow = shadow_of(topic)
    with killed(Resolver, step):
        list(swap(shadow, topic.clock, "ann"))
    topic.clock.advance(3600)
    list(swap(shadow, topic.clock, "ann"))
    topic.rebuild(FIRST)
    assert topic.places() == Counter({(0, 0): 1, (0, 1): 1, (0, 3): 1})
    assert topic.dead() == [(1, True), (2, False), (4, False)]


def test_a_shadow_that_is_not_there_is_named(topic: Topic) -> None:
    with pytest.raises(StorageError, match="no shadow 'y'"):
        list(swap(Shadow(topic.consumer, "y"), topic.clock, "ann"))
