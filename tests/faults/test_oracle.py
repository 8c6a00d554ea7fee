"""The oracle itself: planted losses, duplicates, exchanged tables, changed contents, gaps and wrong offsets are each found."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.owner import Owner
from consumers.staging.files import write_file
from consumers.staging.log import StagedCommit
from consumers.staging.schema import DEAD_LETTERS, WINDOW
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange, TopicPartition
from tests.faults.ledger import Sent, consumer_in, digest, malformed_value, value_of
from tests.faults.oracle import Findings, audit

TP = TopicPartition("t-oracle", 0)
COUNT = 40
MALFORMED = {5, 17}
LEDGER = [
    Sent(0, n, digest(malformed_value(n) if n in MALFORMED else value_of(n, f"text {n}")), n in MALFORMED) for n in range(COUNT)
]


@dataclass
class Tables:
    """What a test plants: the offsets of each table, and the texts of rows."""

    consumer: Consumer
    staged: list[int]
    dead: list[int]
    texts: dict[int, str]
    steps: list[tuple[int, int]]

    def write(self) -> None:
        clock = ManualClock(1_000.0)
        owner = Owner(self.consumer, "m", clock)
        seen = owner.positions([TP])
        owner.acquire(seen, {TP: Start(0)}, "id")
        table = StagedTable(self.consumer, clock)
        for start, end in self.steps:
            rows = self._rows(table.schema, [n for n in self.staged if start <= n < end])
            file = write_file(table.path, rows.drop_columns([WINDOW]), "2013-01-01", clock)
            commit = StagedCommit("c", "batch", self.consumer.name, "m", ranges={TP: OffsetRange(start, end)}, rows=len(rows))
            table.commit([file], commit, {TP: owner.holds[TP].epoch})
        write_deltalake(self.consumer.dead_letters, self._dead(), mode="append")

    def _rows(self, schema: pa.Schema, offsets: list[int]) -> pa.Table:
        rows = [{"id": n, "text": self.texts.get(n, f"text {n}"), **_origin(n), "_tombstone": False} for n in offsets]
        return pa.Table.from_pylist(rows, schema=schema)

    def _dead(self) -> pa.Table:
        rows = [{**_origin(n), "_value": malformed_value(n), "_reason": "planted"} for n in self.dead]
        return pa.Table.from_pylist(rows, schema=DEAD_LETTERS)


def _origin(offset: int) -> dict[str, object]:
    return {"_topic": TP.topic, "_topic_id": "id", "_partition": 0, "_offset": offset, WINDOW: "2013-01-01"}


def perfect(folder: Path) -> Tables:
    """Tables with nothing wrong."""
    good = [n for n in range(COUNT) if n not in MALFORMED]
    return Tables(consumer_in(folder, TP.topic), good, sorted(MALFORMED), {}, [(0, 25), (25, COUNT)])


def lose(tables: Tables) -> None:
    tables.staged.remove(20)


def lose_dead_letter(tables: Tables) -> None:
    tables.dead.remove(17)


def repeat(tables: Tables) -> None:
    tables.staged.append(20)


def repeat_dead_letter(tables: Tables) -> None:
    tables.dead.append(17)


def put_into_both(tables: Tables) -> None:
    tables.dead.append(20)


def put_into_the_wrong_one(tables: Tables) -> None:
    tables.staged.remove(20)
    tables.dead.append(20)


def change(tables: Tables) -> None:
    tables.texts[20] = "something else"


def invent(tables: Tables) -> None:
    tables.staged.append(COUNT - 1)
    tables.dead.append(COUNT)


def stop_early(tables: Tables) -> None:
    tables.steps[-1] = (25, COUNT - 1)


PLANTED: list[tuple[Callable[[Tables], None], Findings]] = [
    (lose, Findings(lost=((0, 20),))),
    (lose_dead_letter, Findings(lost=((0, 17),))),
    (repeat, Findings(twice=((0, 20),))),
    (repeat_dead_letter, Findings(twice=((0, 17),))),
    (put_into_both, Findings(twice=((0, 20),), misplaced=((0, 20),), changed=((0, 20),))),
    (put_into_the_wrong_one, Findings(misplaced=((0, 20),), changed=((0, 20),))),
    (change, Findings(changed=((0, 20),))),
    (invent, Findings(twice=((0, 39),), unknown=((0, 40),))),
    (stop_early, Findings(lost=((0, 39),), positions={0: (39, 40)})),
]


def test_tables_with_nothing_wrong_have_no_findings(tmp_path: Path) -> None:
    tables = perfect(tmp_path)
    tables.write()
    assert audit(tables.consumer, LEDGER, {0: COUNT}, {TP: COUNT}) == Findings()


@pytest.mark.parametrize(("plant", "expected"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_what_is_planted_is_found(plant: Callable[[Tables], None], expected: Findings, tmp_path: Path) -> None:
    tables = perfect(tmp_path)
    plant(tables)
    tables.write()
    assert audit(tables.consumer, LEDGER, {0: COUNT}) == expected


def test_a_group_offset_past_the_position_is_found(tmp_path: Path) -> None:
    tables = perfect(tmp_path)
    tables.write()
    assert audit(tables.consumer, LEDGER, {0: COUNT}, {TP: COUNT + 1}).group_ahead == (0,)


def test_ranges_that_do_not_join_are_found(tmp_path: Path) -> None:
    tables = perfect(tmp_path)
    tables.write()
    owner = Owner(tables.consumer, "m", ManualClock(1_000.0))
    owner.acquire(owner.positions([TP]), {TP: Start(COUNT + 3)}, "id")
    found = audit(tables.consumer, LEDGER, {0: COUNT + 3})
    assert replace(found, gaps=()) == Findings()
    assert found.gaps == (f"version 4: {TP} taken over at {COUNT + 3}, not at {COUNT}",)


def test_an_empty_table_has_lost_everything(tmp_path: Path) -> None:
    found = audit(consumer_in(tmp_path, TP.topic), LEDGER, {0: COUNT})
    assert len(found.lost) == COUNT
    assert found.positions == {0: (None, COUNT)}
