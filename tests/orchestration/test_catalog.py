from collections.abc import Callable
from pathlib import Path

import pytest

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
    assert [line.split(": ")[1] for line in mistakes(tmp_path)] == ["topic", "members", "mode"]


def test_a_file_without_attributes_is_a_mistake(write: Write, tmp_path: Path) -> None:
    write("type: orchestration.components.KafkaConsumer\n")
    assert "topic: Field required" in mistakes(tmp_path)[0]


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
