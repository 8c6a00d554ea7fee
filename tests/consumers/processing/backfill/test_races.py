"""Backfills beside ingestion, beside each other, and killed at every step: no record is twice in the table, none is lost."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumers.brokers.memory import MemoryConsumer
from consumers.processing.backfill.decode import Shaper
from consumers.processing.backfill.source import Source
from consumers.processing.backfill.window import Backfill, Choices
from consumers.staging.resolve import Resolver
from consumers.staging.rewrite import Rewriter, Snapshot
from tests.consumers.processing.backfill.topic import FIRST, Topic
from tests.killing import killed


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """Offsets 0 to 4: a row that stays, one that is invalid today, a dead letter that is valid today, an eternal one, a row."""
    made = Topic(tmp_path, schema={"a": {"type": "long", "path": "a"}, "b": {"type": "long", "nullable": False}})
    made.produce(b'{"a": 0, "b": 0}', b'{"b": 1}', b'{"a": 2}', b"bad", b'{"a": 4, "b": 4}')
    made.stage()
    assert made.rows(FIRST) == [0, 1, 4] and made.dead() == [(2, False), (3, False)]
    made.defined(schema={"a": {"type": "long", "nullable": False}, "b": "long"})
    return made


def whole(topic: Topic, *more: int) -> bool:
    """Whether the window is what today's definition makes of its records, and every record is accounted for once."""
    rows = Counter({(0, offset): 1 for offset in (0, 2, 4, *more)})
    return topic.places() == rows and topic.dead() == [(1, False), (2, True), (3, False)]


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, between a backfill's snapshot and its commit."""
    original, acts = Backfill.make, [act]

    def make(self: Backfill, before: Snapshot) -> Any:
        made = original(self, before)
        if acts:
            acts.pop()()
        return made

    monkeypatch.setattr(Backfill, "make", make)


def test_what_is_ingested_into_the_window_meanwhile_stays(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    def ingest() -> None:
        topic.produce(5, 6)
        topic.stage()

    during(monkeypatch, ingest)
    assert topic.rebuild(FIRST).commit is not None
    assert whole(topic, 5, 6)
    assert topic.rebuild(FIRST).commit is None


def test_of_two_backfills_of_a_window_at_once_the_second_finds_the_work_done(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = []
    during(monkeypatch, lambda: others.append(topic.rebuild(FIRST)))
    mine = topic.rebuild(FIRST)
    assert (others[0].commit is None, mine.commit is None) == (False, True)
    assert whole(topic)


def test_a_position_moved_back_meanwhile_is_not_undone(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    from consumers.brokers.memory import MemoryAdmin
    from consumers.processing.move import Mover

    def move() -> None:
        Mover(topic.consumer, MemoryAdmin(topic.cluster), topic.clock).move({0: 2}, member="x", by="ann", why="test")

    during(monkeypatch, move)
    topic.rebuild(FIRST)
    assert max(offset for _, offset in topic.places()) < 2
    topic.stage()
    assert topic.places() == Counter({(0, 0): 1, (0, 2): 1, (0, 4): 1})


STEPS = [
    (Source, "read"),
    (Shaper, "add"),
    (Resolver, "append"),
    (Rewriter, "_commit"),
    (Resolver, "conclude"),
    (Resolver, "mark"),
]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("kind", "step"), STEPS, ids=lambda each: getattr(each, "__name__", each))
def test_a_backfill_killed_at_any_step_is_finished_by_the_next(topic: Topic, kind: type, step: str, moment: str) -> None:
    with killed(kind, step, moment):
        topic.rebuild(FIRST)
    topic.clock.advance(3600)
    topic.rebuild(FIRST)
    assert whole(topic)
    topic.stage()
    assert whole(topic) and topic.rebuild(FIRST).commit is None


def test_a_backfill_without_choices_asks_kafka_for_nothing_but_its_records(topic: Topic) -> None:
    asked = []

    def connect() -> MemoryConsumer:
        asked.append(1)
        return MemoryConsumer(topic.cluster, "t")

    backfill = Backfill(topic.consumer, connect, topic.clock, Choices())
    for _ in range(2):
        backfill.window(FIRST)
    backfill.window("2013-05-05")
    backfill.close()
    assert asked == [1]
