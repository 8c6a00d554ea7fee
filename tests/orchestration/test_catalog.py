from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.config import Where
from consumers.errors import ConfigError
from orchestration.catalog import consumers, read_folder
from orchestration.settings import Settings

GOOD = """\
type: orchestration.components.KafkaConsumer

attributes:
  topic: orders
  schema:
    id: long
    at: {type: timestamp, nullable: false}
  window: {every: hour, field: at}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "orders") -> Path:
        folder = tmp_path / "defs" / "consumers" / name
        folder.mkdir(parents=True)
        (folder / "defs.yaml").write_text(text)
        return folder / "defs.yaml"

    return write


def mistakes(tmp_path: Path) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read_folder(tmp_path / "defs", Settings.load())
    return str(raised.value).splitlines()


def test_a_consumer_has_its_folders_name_and_its_own_tables(write: Write, tmp_path: Path) -> None:
    write(GOOD)
    settings = Settings.load()
    [consumer] = read_folder(tmp_path / "defs", settings).values()
    assert consumer.name == "orders" and consumer.group == "weir-orders"
    assert consumer.staged == settings.staged("orders") and consumer.dead_letters == settings.dead_letters("orders")
    assert consumer.config.window.every == "hour" and not consumer.config.columns["at"].nullable


def test_the_projects_own_consumers_can_be_read() -> None:
    assert list(consumers(Settings.load())) >= ["flights", "transactions", "weather"]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("topic: orders", "topic: orders\n  topik: 1", 5, "topik: Extra inputs are not permitted"),
        ("topic: orders", "topic: 7", 4, "topic: Input should be a valid string"),
        ("id: long", "id: lnog", 6, "schema.id.type: unknown type 'lnog'"),
        ("id: long", "id: binary", 5, "schema: 'id' is binary, which JSON cannot hold"),
        ("every: hour", "every: week", 8, "window.every: Input should be 'hour' or 'day'"),
        ("field: at", "field: id", 8, "window.field: 'id' must be a timestamp or a date"),
        ("field: at", "first: 1-1-1", 8, "window.first: a day such as 2013-01-01"),
        ("id: long", "id: {type: long, path: a..b}", 6, "schema.id: path: 'a..b' is no path such as a.b or items[0].id"),
        ("id: long", "id: {type: long, key: true, header: h}", 6, "schema.id: one of path, header and key"),
        (
            "topic: orders",
            "topic: orders\n  split: {column: id, tables: {a: [1], b: [], c: []}}",
            5,
            "split: tables: only one of them",
        ),
        ("topic: orders", "topic: orders\n  split: {column: at, tables: {a: [x]}}", 5, "split.column: 'at' must be a string"),
        ("topic: orders", "topic: orders\n  where: {column: id, in: ['1']}", 5, "where: '1' is no value of 'id', a long"),
        ("topic: orders", "topic: orders\n  where: {column: id}", 5, "where: one of in and not_in"),
        ("topic: orders", "topic: orders\n  transform: f", 5, "transform: function: 'f' is no dotted path to a function"),
        (
            "topic: orders",
            "topic: orders\n  mode: scheduled\n  schedule: nightly",
            6,
            "schedule: 'nightly' is no cron line of five parts",
        ),
        (
            "topic: orders",
            "topic: orders\n  mode: scheduled\n  schedule: 0 0 30 2 *",
            6,
            "schedule: '0 0 30 2 *' is no cron line",
        ),
        ("topic: orders", "topic: '{{ env.WEIR_TEST_UNSET }}'", 3, "the environment variable WEIR_TEST_UNSET is not set"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(
    old: str, new: str, line: int, message: str, write: Write, tmp_path: Path
) -> None:
    path = write(GOOD.replace(old, new))
    [mistake] = mistakes(tmp_path)
    assert mistake.startswith(f"{path}:{line}: {message}")


def test_all_mistakes_of_a_file_are_named_at_once(write: Write, tmp_path: Path) -> None:
    write(GOOD.replace("topic: orders", "members: 0\n  mode: sometimes"))
    assert [line.split(": ")[1] for line in mistakes(tmp_path)] == ["topic_pattern", "members", "mode"]


def test_a_file_without_attributes_is_a_mistake(write: Write, tmp_path: Path) -> None:
    write("type: orchestration.components.KafkaConsumer\n")
    assert "exactly one of topic, topics and topic_pattern" in mistakes(tmp_path)[0]


def test_a_file_that_is_no_yaml_is_named_with_its_line(write: Write, tmp_path: Path) -> None:
    path = write(GOOD.replace("topic: orders", "topic: [orders"))
    assert any(str(path) in line and "line 5" in line for line in mistakes(tmp_path))


def test_a_folder_name_that_cannot_be_a_consumers_is_a_mistake(write: Write, tmp_path: Path) -> None:
    write(GOOD, name="Big-Orders")
    assert "consumer name 'Big-Orders'" in mistakes(tmp_path)[0]


def test_one_name_is_defined_once(write: Write, tmp_path: Path) -> None:
    write(GOOD)
    write(GOOD, name="more/orders")
    assert "the consumer 'orders' is defined in" in mistakes(tmp_path)[0]


def test_the_environment_fills_in_strings(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_TEST_PREFIX", "prod")
    write(GOOD.replace("topic: orders", 'topic: "{{ env.WEIR_TEST_PREFIX }}.orders"'))
    assert read_folder(tmp_path / "defs", Settings.load())["orders"].config.topic == "prod.orders"


def test_other_components_are_left_alone(write: Write, tmp_path: Path) -> None:
    write("type: dagster.DefsFolderComponent\n")
    assert read_folder(tmp_path / "defs", Settings.load()) == {}


SPLIT = """\
  split: {column: carrier, tables: {united: [UA], big: [UA, AA], others: []}}
  schema:
    carrier: string
"""


def test_a_split_is_a_consumer_for_each_table_with_its_own_group_and_records(write: Write, tmp_path: Path) -> None:
    write(GOOD.replace("  schema:\n", SPLIT))
    settings = Settings.load()
    found = read_folder(tmp_path / "defs", settings)
    assert list(found) == ["orders_big", "orders_others", "orders_united"]
    assert found["orders_big"].staged == settings.staged("orders_big") and found["orders_big"].group == "weir-orders_big"
    wheres = {name: consumer.config.where for name, consumer in found.items()}
    assert wheres["orders_united"] == Where.model_validate({"column": "carrier", "in": ["UA"]})
    assert wheres["orders_others"] == Where(column="carrier", not_in=["UA", "AA"])
    assert {consumer.config.split for consumer in found.values()} == {None}


def test_the_tables_of_a_split_have_groups_of_their_own_also_where_the_group_is_named(write: Write, tmp_path: Path) -> None:
    write(GOOD.replace("  schema:\n", f"  group: prod\n{SPLIT}"))
    groups = {consumer.group for consumer in read_folder(tmp_path / "defs", Settings.load()).values()}
    assert groups == {"prod_united", "prod_big", "prod_others"}


def test_a_table_of_a_split_cannot_have_the_name_of_another_consumer(write: Write, tmp_path: Path) -> None:
    write(GOOD.replace("  schema:\n", SPLIT))
    write(GOOD, name="orders_big")
    assert "the consumer 'orders_big' is defined in" in mistakes(tmp_path)[0]


def test_what_yaml_takes_for_a_boolean_is_not_taken_for_text(write: Write, tmp_path: Path) -> None:
    write(GOOD.replace("id: long", "id: string").replace("topic: orders", "topic: orders\n  where: {column: id, in: [NO]}"))
    [mistake] = mistakes(tmp_path)
    assert "False is no value of 'id', a string; YAML takes yes, no, on, off for a boolean: put them in quotes" in mistake
