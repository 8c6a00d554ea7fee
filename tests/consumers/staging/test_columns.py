"""Tables whose definition has changed: new columns are added by whoever comes first, everything else is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from consumers.clock import ManualClock
from consumers.errors import StorageError
from consumers.processing.starts import Start
from consumers.staging.delta import open_table
from consumers.staging.local import local_dataset
from consumers.staging.schema import DEAD_LETTERS, WINDOW
from consumers.staging.staged import StagedTable
from tests.consumers.parts import TP, consumer
from tests.consumers.staging.rewriting import BAD, GOOD, LATER, Ingestion, rows, table, waiting

MARKS = ("_commit_id", "_attempts", "_resolved_at", "_resolved_by")


def test_a_new_column_is_added_and_old_rows_have_none_of_it(tmp_path: Path) -> None:
    Ingestion(consumer(tmp_path)).stage(GOOD)
    wider = consumer(tmp_path, schema={"b": "long", "a": "long"})
    Ingestion(wider, first=1).stage(LATER)
    found = {row["_offset"]: (row["a"], row["b"]) for row in table(wider.staged).to_pylist()}
    assert found == {0: (1, None), 1: (1, 2)}


def test_members_that_add_the_same_column_at_once_all_open_the_table(tmp_path: Path) -> None:
    StagedTable(consumer(tmp_path), ManualClock())
    wider = consumer(tmp_path, schema={"a": "long", "b": "long", "c": "string"})
    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(lambda _: StagedTable(wider, ManualClock()), range(4)))
    assert len(opened) == 4
    assert [f.name for f in DeltaTable(wider.staged).schema().fields].count("b") == 1


def test_a_member_that_began_before_the_column_came_goes_on(tmp_path: Path) -> None:
    member = Ingestion(consumer(tmp_path))
    member.stage(GOOD, BAD)
    StagedTable(consumer(tmp_path, schema={"a": "long", "b": "long"}), ManualClock())
    member.stage(GOOD, BAD)
    assert rows(member.consumer) == [0, 2] and waiting(member.consumer) == [1, 3]


def test_a_member_of_the_old_types_commits_nothing_into_a_table_that_was_swapped_under_it(tmp_path: Path) -> None:
    member = Ingestion(consumer(tmp_path))
    member.stage(GOOD)
    now = table(member.consumer.staged)
    swapped = now.set_column(now.schema.get_field_index("a"), "a", now["a"].cast(pa.string()))
    write_deltalake(member.consumer.staged, swapped, mode="overwrite", schema_mode="overwrite", partition_by=[WINDOW])
    with pytest.raises(StorageError, match=r"a \(string in the table, int64 by the definition\)"):
        member.stage(GOOD)
    assert rows(member.consumer) == [0]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"a": "integer"}, r"a \(int64 in the table, int32 by the definition\)"),
        ({"a": "string"}, r"a \(int64 in the table, string by the definition\)"),
        ({"b": "long"}, r"a \(in the table only\)"),
    ],
)
def test_every_other_change_is_refused_with_the_jobs_that_build_the_table_again(
    tmp_path: Path, schema: dict[str, str], said: str
) -> None:
    StagedTable(consumer(tmp_path), ManualClock())
    with pytest.raises(StorageError, match=said) as refused:
        StagedTable(consumer(tmp_path, schema=schema), ManualClock())
    assert "launch the job shadow_c, then swap_c" in str(refused.value)
    assert DeltaTable(tmp_path / "staged").schema().fields[0].name == "a"
    assert DeltaTable(tmp_path / "staged").version() == 0


@pytest.mark.parametrize("part", ["whole", "of one topic"])
def test_a_consumer_of_several_topics_is_told_what_works_there(tmp_path: Path, part: str) -> None:
    several = consumer(tmp_path, topic=None, topics=["t", "u"])
    StagedTable(several, ManualClock())
    changed = consumer(tmp_path, topic=None, topics=["t", "u"], schema={"a": "integer"})
    with pytest.raises(StorageError, match="use a new name, which stages into a new table") as refused:
        StagedTable(changed if part == "whole" else changed.of_topic("t"), ManualClock())
    assert "shadow_c" not in str(refused.value)


def test_dead_letters_of_an_earlier_release_are_taken_over_and_added_to(tmp_path: Path) -> None:
    parts = consumer(tmp_path)
    before = pa.schema([field for field in DEAD_LETTERS if field.name not in MARKS])
    write_deltalake(parts.dead_letters, before.empty_table())
    member = Ingestion(parts)
    member.stage(GOOD, BAD)
    member.reject(BAD)
    member.owner.acquire(member.owner.positions([TP]), {TP: Start(2)}, "id")
    assert waiting(parts) == [1]


@pytest.mark.parametrize("value", [None, 7])
def test_filters_on_a_new_column_find_rows_from_before_it(tmp_path: Path, value: int | None) -> None:
    write_deltalake(tmp_path, pa.table({"a": [1, 2]}))
    opened = open_table(tmp_path, pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())]))
    write_deltalake(opened, pa.table({"a": [3], "b": pa.array([value], pa.int64())}), mode="append")
    found = local_dataset(DeltaTable(tmp_path))
    assert found.count_rows(filter=pc.field("b").is_null()) == (3 if value is None else 2)
    assert found.count_rows(filter=pc.field("b") == 7) == (0 if value is None else 1)


def test_files_that_a_filter_rules_out_by_window_or_offset_are_not_read(tmp_path: Path) -> None:
    member = Ingestion(consumer(tmp_path))
    member.stage(GOOD, GOOD)
    member.stage(GOOD)
    dataset = local_dataset(DeltaTable(member.consumer.staged))
    assert len(list(dataset.get_fragments(filter=pc.field("_offset") == 2))) == 1
    assert list(dataset.get_fragments(filter=pc.field("_window") == "2013-01-02")) == []


def test_partition_values_that_paths_cannot_hold_come_back_as_they_are(tmp_path: Path) -> None:
    values = ["a b%", "x/y", "é", None]
    write_deltalake(tmp_path, pa.table({"p": values, "v": [0, 1, 2, 3]}), partition_by=["p"])
    found = local_dataset(DeltaTable(tmp_path)).to_table().sort_by("v")
    assert found["p"].to_pylist() == values


def test_an_empty_table_is_an_empty_dataset(tmp_path: Path) -> None:
    staged = StagedTable(consumer(tmp_path), ManualClock())
    assert local_dataset(DeltaTable(staged.path), "2013-01-01").to_table().num_rows == 0
