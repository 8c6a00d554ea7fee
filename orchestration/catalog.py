"""The consumers of this project, read from their YAML files without building any Dagster definitions.

The commands need them in milliseconds, and the component uses the same reading, so that both accept and refuse the same files.
Imports nothing of `dagster` itself, unless a definition has a cron line to be read.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from dagster_shared.yaml_utils import parse_yamls_with_source_position
from dagster_shared.yaml_utils.source_position import SourcePositionTree, ValueAndSourcePositionTree
from pydantic import ValidationError, field_validator, model_validator

from consumers.config import Consumer, ConsumerConfig, Split
from consumers.errors import ConfigError
from orchestration.settings import Settings

COMPONENT_TYPE = "orchestration.components.KafkaConsumer"
CONSUMER_TAG = "weir/consumer"
"""The tag of every ingestion run: its consumer's name."""
KILL_AFTER_SECONDS = 120
"""How much longer than a member's own limit a run may live before run monitoring ends it."""
_ENV = re.compile(r"\{\{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class ConsumerAttributes(ConsumerConfig):
    """A consumer's definition as it stands in YAML: `{{ env.NAME }}` in a string is that environment variable."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_environment(cls, value: Any) -> Any:
        return _filled(value)

    @field_validator("schedule")
    @classmethod
    def _cron_line(cls, schedule: str | None) -> str | None:
        if schedule is not None:
            # Dagster's own reading, which the sensor goes by; only a definition with a schedule has to wait for its import.
            from dagster._utils.schedules import is_valid_cron_string

            if not is_valid_cron_string(schedule):
                raise ValueError(f"'{schedule}' is no cron line of five parts, such as '0 * * * *'")
        return schedule

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """The schema for editors and `dg check yaml`, which validate what is written: with the short forms."""
        schema: dict[str, Any] = handler.resolve_ref_schema(handler(core_schema))
        properties = schema["properties"]
        properties["window"] = {"anyOf": [properties["window"], {"enum": ["hour", "day"]}]}
        columns = properties["schema"]
        columns["additionalProperties"] = {"anyOf": [columns["additionalProperties"], {"type": "string"}]}
        # What is written may hold an environment variable.
        properties["topic"], properties["topics"]["anyOf"][0]["items"] = {"type": "string"}, {"type": "string"}
        properties["transform"] = {"anyOf": [properties["transform"], {"type": "string"}]}
        return schema


def consumers(settings: Settings) -> dict[str, Consumer]:
    """All consumers of the project by name, in the order of their names.

    Raises ConfigError with file and line for every mistake in the first file that has one.
    """
    return read_folder(settings.project / "orchestration" / "defs", settings)


def read_folder(folder: Path, settings: Settings) -> dict[str, Consumer]:
    """The consumers defined below a folder. Raises ConfigError."""
    found: dict[str, tuple[Consumer, Path]] = {}
    for path in sorted(folder.rglob("defs.yaml")):
        for consumer in _read_file(path, settings):
            if consumer.name in found:
                raise ConfigError(f"{path}: the consumer '{consumer.name}' is defined in {found[consumer.name][1]} already")
            found[consumer.name] = (consumer, path)
    return {name: found[name][0] for name in sorted(found)}


def consumers_of(name: str, config: ConsumerConfig, settings: Settings) -> list[Consumer]:
    """The consumers of one definition: one, or one for each table of a split. Raises ValueError for a name that is none."""
    if config.split is None:
        return [named(name, config, settings)]
    return [named(f"{name}_{table}", _part_of(config, config.split, table), settings) for table in config.split.tables]


def named(name: str, config: ConsumerConfig, settings: Settings) -> Consumer:
    """A consumer with its tables' places. Raises ValueError for a name that is none."""
    if config.transform is not None and str(settings.project) not in sys.path:
        # A command's path does not have the project, whose transforms are its own.
        sys.path.append(str(settings.project))
    return Consumer(name=name, config=config, staged=settings.staged(name), dead_letters=settings.dead_letters(name))


def _part_of(config: ConsumerConfig, split: Split, table: str) -> ConsumerConfig:
    """The definition of one table of a split, which reads the topic for itself."""
    group = config.group and f"{config.group}_{table}"
    return config.model_copy(update={"split": None, "where": split.where(table), "group": group})


def ingestion_job_name(consumer: str) -> str:
    """The name of the job whose runs are the consumer's members, and of the pool that limits them."""
    return f"ingest_{consumer}"


def ingestion_op_name(consumer: str) -> str:
    """The name of that job's only op."""
    return f"stage_{consumer}"


def ingestion_run_config(consumer: str, until_caught_up: bool, max_seconds: int | None = None) -> dict[str, Any]:
    """The configuration of one ingestion run."""
    config: dict[str, Any] = {"until_caught_up": until_caught_up}
    if max_seconds is not None:
        config["max_seconds"] = max_seconds
    return {"ops": {ingestion_op_name(consumer): {"config": config}}}


def check_job_name(consumer: str) -> str:
    """The name of the job that runs a consumer's checks."""
    return f"check_{consumer}"


def _read_file(path: Path, settings: Settings) -> Iterator[Consumer]:
    text = path.read_text(encoding="utf-8")
    if COMPONENT_TYPE not in text:
        return
    try:
        documents = parse_yamls_with_source_position(text, str(path))
    except yaml.YAMLError as error:
        raise ConfigError(str(error)) from None
    for document in documents:
        if isinstance(document.value, Mapping) and document.value.get("type") == COMPONENT_TYPE:
            yield from _parse(document, path, settings)


def _parse(document: ValueAndSourcePositionTree, path: Path, settings: Settings) -> list[Consumer]:
    tree = document.source_position_tree
    attributes = document.value.get("attributes")
    try:
        config = ConsumerAttributes.model_validate({} if attributes is None else attributes)
    except ValidationError as error:
        raise ConfigError(explain(error, tree.children.get("attributes", tree))) from None
    try:
        return consumers_of(path.parent.name, config, settings)
    except ValidationError as error:
        raise ConfigError(explain(error, tree)) from None


_REWORDED = {"model_type": "Input should be a mapping of keys to values"}


def explain(error: ValidationError, tree: SourcePositionTree) -> str:
    """A line for each mistake: file:line, the key's path, what is wrong with it."""
    lines = []
    for mistake in error.errors():
        message = _REWORDED.get(mistake["type"], mistake["msg"]).removeprefix("Value error, ")
        key: list[str | int] = list(mistake["loc"])
        name = ".".join(str(part) for part in key)
        # What is wrong between keys is reported for the whole; its message starts with the key to look at.
        position = tree.lookup_closest_and_path(key or message.partition(":")[0].split("."), None)[0]
        lines.append(f"{position}: {name + ': ' if name else ''}{message}")
    return "\n".join(lines)


def _filled(value: Any) -> Any:
    if isinstance(value, str):
        return _ENV.sub(_variable, value)
    if isinstance(value, Mapping):
        return {key: _filled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner) for inner in value]
    return value


def _variable(match: re.Match[str]) -> str:
    if (value := os.environ.get(match[1])) is None:
        raise ValueError(f"the environment variable {match[1]} is not set")
    return value
