"""The oracle itself: planted losses, duplicates, exchanged tables, changed contents, gaps and wrong offsets are each found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from consumers.brokers.memory import MemoryAdmin, MemoryCluster, MemoryProducer
from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.owner import Owner
from consumers.staging.files import write_file
from consumers.staging.log import StagedCommit, WindowChange
from consumers.staging.schema import DEAD_LETTERS, WINDOW
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange, TopicPartition
from orchestration.mirror_events import staged_key
from tests.faults.kinds import Kinds, Watch, judge, phantoms
from tests.faults.ledger import Ledger, Sent, consumer_in, digest, malformed_value, value_of
from tests.faults.loads import broken
from tests.faults.mirrored import differences, repaired
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
    topic_id: str = "id"
    ids: dict[int, int] = field(default_factory=dict)

    def write(self) -> None:
        clock = ManualClock(1_000.0)
        owner = Owner(self.consumer, "m", clock)
        seen = owner.positions([TP])
        owner.acquire(seen, {TP: Start(0)}, self.topic_id)
        table = StagedTable(self.consumer, clock)
        for start, end in self.steps:
            rows = self._rows(table.schema, [n for n in self.staged if start <= n < end])
            file = write_file(table.path, rows.drop_columns([WINDOW]), "2013-01-01", clock)
            dead = sum(start <= n < end for n in self.dead)
            commit = StagedCommit(
                f"{start:08}",
                "batch",
                self.consumer.name,
                "m",
                ranges={TP: OffsetRange(start, end)},
                rows=len(rows),
                dead_letters=dead,
                windows={"2013-01-01": WindowChange(len(rows), file.size, 1)},
            )
            table.commit([file], commit, {TP: owner.holds[TP].epoch})
        write_deltalake(self.consumer.dead_letters, self._dead(), mode="append")

    def _rows(self, schema: pa.Schema, offsets: list[int]) -> pa.Table:
        rows = [
            {"id": self.ids.get(n, n), "text": self.texts.get(n, f"text {n}"), **_origin(n), "_tombstone": False} for n in offsets
        ]
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


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def admin() -> MemoryAdmin:
    """Of a cluster whose topic has what the ledger has."""
    cluster = MemoryCluster(ManualClock(1_000.0))
    admin = MemoryAdmin(cluster)
    admin.create_topic(TP.topic)
    producer = MemoryProducer(cluster)
    for _ in LEDGER:
        producer.send(TP.topic, b"")
    producer.close()
    return admin


def written(folder: Path, admin: MemoryAdmin, plant: Callable[[Tables], None] = lambda tables: None) -> Consumer:
    """The consumer of tables that belong to the cluster."""
    tables = perfect(folder)
    tables.topic_id = admin.topic_id(TP.topic)
    plant(tables)
    tables.write()
    return tables.consumer


def still() -> Watch:
    """A watch over offsets that never move."""
    return Watch(lambda: {TP: COUNT}, lambda: {TP: COUNT})


def test_where_nothing_is_wrong_no_kind_is_found(tmp_path: Path, admin: MemoryAdmin, instance: dg.DagsterInstance) -> None:
    consumer = written(tmp_path, admin)
    assert judge(consumer, Ledger(LEDGER), {0: COUNT}, still(), instance, admin) == Kinds()


@pytest.mark.parametrize(
    ("plant", "kinds"),
    [(lose, "L"), (repeat, "D"), (put_into_both, "DH"), (invent, "DP"), (change, "H"), (stop_early, "LO")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_each_kind_of_what_is_planted_is_found(
    plant: Callable[[Tables], None], kinds: str, tmp_path: Path, admin: MemoryAdmin, instance: dg.DagsterInstance
) -> None:
    found = judge(written(tmp_path, admin, plant), Ledger(LEDGER), {0: COUNT}, still(), instance, admin)
    assert "".join(kind for kind, count in found.counts().items() if count and kind != "M") == kinds


def test_a_row_of_a_failed_send_is_a_phantom(tmp_path: Path, admin: MemoryAdmin) -> None:
    consumer, sent = written(tmp_path, admin), LEDGER[20]
    assert phantoms(consumer, Ledger(LEDGER)) == []
    assert len(phantoms(consumer, Ledger(LEDGER, failed={sent.digest}))) == 1
    assert len(phantoms(consumer, Ledger([each for each in LEDGER if each != sent]))) == 1


def test_a_row_of_an_unknown_send_may_be_there_once(tmp_path: Path, admin: MemoryAdmin) -> None:
    def again(tables: Tables) -> None:
        tables.texts[21], tables.ids[21] = tables.texts.get(20, "text 20"), 20

    rest = [each for each in LEDGER if each.offset not in (20, 21)]
    once = written(tmp_path / "once", admin)
    unknown = {LEDGER[20].digest, LEDGER[21].digest}
    assert phantoms(once, Ledger(rest, unknown=unknown)) == []
    twice = written(tmp_path / "twice", admin, again)
    assert phantoms(twice, Ledger(rest, unknown=unknown)) == ["an unknown send is there 2 times"]


@pytest.mark.parametrize("what", ["position", "group offset"])
def test_an_offset_that_goes_back_is_found(what: str) -> None:
    now = {"position": 9, "group offset": 5}
    watch = Watch(lambda: {TP: now["position"]}, lambda: {TP: now["group offset"]})
    watch.look()
    assert watch.wrong == []
    now[what] -= 1
    watch.look()
    assert watch.wrong == [f"{TP}: the {what} went back from {now[what] + 1} to {now[what]}"]


def test_a_group_offset_that_is_past_the_position_for_a_moment_is_found() -> None:
    watch = Watch(lambda: {TP: 4}, lambda: {TP: 5})
    watch.look()
    assert watch.wrong == [f"{TP}: group offset 5 is past the position 4"]


def test_a_version_that_is_missing_is_found(tmp_path: Path, admin: MemoryAdmin, instance: dg.DagsterInstance) -> None:
    consumer = written(tmp_path, admin)
    (consumer.staged / "_delta_log" / f"{2:020}.json").unlink()
    assert f"{consumer.staged.name}: version 2 is not in the log" in broken(consumer.staged)
    assert judge(consumer, Ledger(LEDGER), {0: COUNT}, still(), instance, admin).V


def test_a_torn_file_is_found_by_every_reader(tmp_path: Path, admin: MemoryAdmin) -> None:
    consumer = written(tmp_path, admin)
    file = Path(DeltaTable(consumer.staged).file_uris()[0].removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:100])
    assert [text.split(" cannot")[0].split()[-1] for text in broken(consumer.staged)] == ["delta-rs", "DuckDB"]


def test_events_that_were_wiped_are_found(tmp_path: Path, admin: MemoryAdmin, instance: dg.DagsterInstance) -> None:
    consumer = written(tmp_path, admin)
    assert len(differences(instance, consumer)) == 2
    assert repaired(instance, consumer, admin) == []
    assert differences(instance, consumer) == []
    instance.wipe_assets([staged_key(consumer.name)])
    assert len(differences(instance, consumer)) == 1


def test_an_event_that_counts_other_rows_is_found(tmp_path: Path, admin: MemoryAdmin, instance: dg.DagsterInstance) -> None:
    consumer = written(tmp_path, admin)
    repaired(instance, consumer, admin)
    write_deltalake(consumer.staged, DeltaTable(consumer.staged).to_pyarrow_table().slice(0, 1), mode="append")
    assert differences(instance, consumer) == ["2013-01-01: the event counts 38 rows, the table has 39"]
