"""What one consumer is: the typed form of its YAML definition. Validation happens here and nowhere later."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from consumers.columns import RAW_TYPES, Column, Columns, arrow_type, check_names
from consumers.errors import ConfigError
from consumers.maintenance import Maintenance, MaintenanceKey
from consumers.membership import GroupSettings
from consumers.paths import Leaf, tree

__all__ = [
    "BatchLimits", "Column", "Consumer", "ConsumerConfig", "InvalidLimits", "LagLimits", "OnLag", "Split", "Transform", "Where",
    "Window", "arrow_type",
]  # fmt: skip
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def _known_day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("a day such as 2013-01-01") from None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Window(_Strict):
    """How rows are cut into windows of event time."""

    every: Literal["hour", "day"]
    field: str | None = Field(default=None, description="a timestamp or date column; default: the record's own timestamp")
    first: Annotated[str, AfterValidator(_known_day)] | None = Field(
        default=None, description="the first day, such as 2013-01-01, that has a Dagster partition; default: 2000 (hour: 2020)"
    )
    last: Annotated[str, AfterValidator(_known_day)] | None = Field(
        default=None, description="the last day that has a Dagster partition, for data that ends; default: today, for ever"
    )
    grace_seconds: float = Field(
        default=60.0, ge=0, description="a window is complete when every partition has passed its end by this long"
    )
    idle_seconds: float = Field(
        default=60.0, ge=0, description="a partition with nothing to read for this long holds no window open"
    )


class BatchLimits(_Strict):
    """When a batch is written and committed: whichever limit is reached first."""

    max_records: int = Field(default=200_000, ge=1, description="rows")
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, description="bytes in memory")
    max_latency_seconds: float = Field(default=10.0, gt=0, description="age of the oldest buffered record")
    full_window_latency_seconds: float | None = Field(
        default=None, gt=0, description="the same at most where a window is past `maintenance.files_per_window`; default: as ever"
    )


class InvalidLimits(_Strict):
    """When invalid records stop the consumer instead of passing into the dead-letter table."""

    max_ratio: float = Field(default=1.0, ge=0, le=1, description="share of a committed batch, from 100 records on")
    max_consecutive: int | None = Field(default=None, ge=1, description="in a row in one partition")
    max_bytes: int | None = Field(default=None, ge=1, description="bytes of them that wait to be written")


class LagLimits(_Strict):
    """How old the oldest record that waits may be: the check `time_lag` and the asset's freshness."""

    warn_seconds: float = Field(default=600.0, gt=0)
    fail_seconds: float = Field(default=3600.0, gt=0)


class OnLag(_Strict):
    """From when on `mode: on_lag` starts a run: whichever is reached first."""

    records: int = Field(default=1, ge=1, description="records that wait")
    seconds: float | None = Field(default=None, gt=0, description="age of the oldest record that waits")


TopicName = Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
Value = str | int | bool


class Where(_Strict):
    """The records that belong to this table; the others are passed over, and counted."""

    column: str
    values: list[Value] | None = Field(default=None, alias="in", min_length=1, description="the column's values")
    not_in: list[Value] | None = Field(default=None, description="all but these values; a record without one belongs, too")

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        if (self.values is None) == (self.not_in is None):
            raise ValueError("one of in and not_in")
        return self


class Split(_Strict):
    """One topic into several tables, each a consumer of its own named `<name>_<table>`."""

    column: str
    tables: dict[str, list[Value]] = Field(min_length=1, description="table → the column's values; [] takes all the rest")

    @model_validator(mode="after")
    def _one_rest(self) -> Self:
        if sum(not values for values in self.tables.values()) > 1:
            raise ValueError("tables: only one of them can take the rest: []")
        return self

    def where(self, table: str) -> Where:
        """The records of one of the tables."""
        if values := self.tables[table]:
            return Where.model_validate({"column": self.column, "in": values})
        named = dict.fromkeys(value for values in self.tables.values() for value in values)
        return Where(column=self.column, not_in=list(named))


class Transform(_Strict):
    """A function between reading and the table."""

    function: str = Field(description="package.module.function: a pyarrow Table → one with as many rows and the schema's columns")
    columns: Columns | None = Field(default=None, description="the columns that it is given; default: the schema's")

    @model_validator(mode="after")
    def _dotted(self) -> Self:
        if not _FUNCTION.fullmatch(self.function):
            raise ValueError(f"function: '{self.function}' is no dotted path to a function, such as transforms.orders.in_euros")
        return self


def _short_transform(value: Any) -> Any:
    """`transform: package.module.function` means `transform: {function: package.module.function}`."""
    return {"function": value} if isinstance(value, str) else value


def _short_window(value: Any) -> Any:
    """`window: day` means `window: {every: day}`."""
    return {"every": value} if isinstance(value, str) else value


def _start(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str) and value not in ("earliest", "latest"):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("start is 'earliest', 'latest' or a timestamp such as 2026-01-31T00:00:00Z") from None
    else:
        return value
    if moment.tzinfo is None:
        raise ValueError("a start timestamp needs an offset, such as Z")
    return moment.isoformat()


_VALUES: dict[str, type] = {"string": str, "boolean": bool, "byte": int, "short": int, "integer": int, "long": int}
"""The types of the columns that `where` and `split` may go by."""


class ConsumerConfig(_Strict):
    """A consumer's definition: the attributes of `defs/consumers/<name>/defs.yaml`."""

    only_topic: TopicName | None = Field(default=None, alias="topic", description="one Kafka topic")
    topics: list[TopicName] | None = Field(default=None, min_length=1, description="several topics, into one table")
    topic_pattern: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="all topics whose whole name is like this regular expression, into one table",
    )
    transform: Annotated[Transform | None, BeforeValidator(_short_transform)] = None
    where: Where | None = Field(default=None, description="only the records with these values belong to the table")
    split: Split | None = Field(default=None, description="several tables from one topic, by a column's value")
    keep_raw: bool = Field(default=False, description="keep each record's bytes in `_value`: windows are rebuilt from the table")
    format: Literal["json", "raw"] = "json"
    columns: Columns = Field(alias="schema")
    window: Annotated[Window, BeforeValidator(_short_window)]
    group: str | None = Field(default=None, description="the Kafka consumer group; default: weir-<name>")
    batch: BatchLimits = BatchLimits()
    start: Annotated[str, BeforeValidator(_start)] = "earliest"
    invalid_records: InvalidLimits = InvalidLimits()
    on_data_loss: Literal["fail", "record"] = "fail"
    members: int = Field(default=1, ge=1, le=64)
    membership: GroupSettings = GroupSettings()
    mode: Literal["continuous", "scheduled", "on_lag"] = Field(
        default="continuous",
        description="continuous: members always alive; scheduled: by `schedule`, until caught up; on_lag: while records wait",
    )
    schedule: str | None = Field(default=None, description="mode scheduled: when to start, as cron in UTC, such as '0 * * * *'")
    on_lag: OnLag = OnLag()
    lag: LagLimits = LagLimits()
    show_values: bool = Field(default=False, description="show samples of dead letters' values in Dagster")
    max_run_seconds: int = Field(default=1800, ge=10, description="a member hands over to the next after this long")
    autostart: bool = Field(default=False, description="the sensor starts switched on")
    maintenance: MaintenanceKey = Maintenance()
    description: str | None = None
    owners: list[str] = []

    @field_validator("topic_pattern")
    @classmethod
    def _one_of_three(cls, pattern: str | None, others: ValidationInfo) -> str | None:
        # One that is wrong is not among the data, and has its own message.
        given = [pattern, others.data.get("only_topic", ""), others.data.get("topics", "")]
        if given.count(None) != 2 and "" not in given:
            raise ValueError("exactly one of topic, topics and topic_pattern")
        return pattern

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self._sound_topics()
        check_names("schema", self.columns)
        if self.transform is not None and self.transform.columns is not None:
            check_names("transform.columns", self.transform.columns)
            if moved := [n for n, c in self.columns.items() if c.path is not None or not c.of_value]:
                raise ValueError(f"schema: '{moved[0]}': the transform returns it; say in transform.columns where it is read")
        self._readable()
        self._chosen()
        self._window_field()
        if (self.mode == "scheduled") != (self.schedule is not None):
            raise ValueError("schedule: `mode: scheduled` needs a cron line, and no other mode takes one")
        if self.membership.instance_id is not None and self.members > 1:
            raise ValueError(f"membership.instance_id: one id for {self.members} members; leave it out, or set members: 1")
        return self

    @property
    def topic(self) -> str:
        """The only topic. Raises ConfigError for a consumer of several, whose engine works on `Consumer.of_topic`."""
        if self.only_topic is None:
            raise ConfigError(f"this consumer reads {self.reads}: one of them has to be named")
        return self.only_topic

    @property
    def source(self) -> str:
        """What is read, for a table's cell: a topic, several, or a pattern."""
        return ", ".join(self.topics_among(tuple)) if self.topic_pattern is None else f"like {self.topic_pattern}"

    @property
    def reads(self) -> str:
        """What is read, in a sentence."""
        return f"the topic {self.source}" if self.only_topic is not None else f"the topics {self.source}"

    def topics_among(self, existing: Callable[[], Iterable[str]]) -> list[str]:
        """The topics that are read: those that are named, or those `existing` that are like the pattern. Only that one asks."""
        if self.topic_pattern is None:
            return [self.only_topic] if self.only_topic is not None else list(self.topics or ())
        like = re.compile(self.topic_pattern)
        return sorted(name for name in existing() if like.fullmatch(name) and not name.startswith("__"))

    def _sound_topics(self) -> None:
        if self.topics is not None and len(set(self.topics)) < len(self.topics):
            raise ValueError("topics: one is named twice")
        try:
            re.compile(self.topic_pattern or "")
        except re.error as error:
            raise ValueError(f"topic_pattern: '{self.topic_pattern}' is no regular expression: {error}") from None

    @property
    def read_columns(self) -> Mapping[str, Column]:
        """The columns as they are read: the schema's, unless a transform makes those of others."""
        given = self.transform.columns if self.transform is not None else None
        return self.columns if given is None else given

    def _readable(self) -> None:
        """Whether the format has the columns that are read."""
        where = "schema" if self.read_columns is self.columns else "transform.columns"
        own = {name: column for name, column in self.read_columns.items() if column.of_value}
        if not own:
            raise ValueError(f"{where}: at least one column of the record's value")
        if self.format == "raw":
            if [c.type in RAW_TYPES and c.path is None for c in own.values()] != [True]:
                raise ValueError(f"{where}: format raw has one column, of type binary or string, beside those of key and headers")
            return
        for name, column in own.items():
            if column.type == "binary":
                raise ValueError(f"{where}: '{name}' is binary, which JSON cannot hold; use string, or format: raw")
        try:
            tree((column.path or name, Leaf(column.type, not column.nullable)) for name, column in own.items())
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    def _chosen(self) -> None:
        """Whether `where` and `split` name a column, and values that it can have."""
        if self.where is not None and self.split is not None:
            raise ValueError("split: leave out where; each table of a split has its own")
        if self.where is not None:
            self._has_values("where", self.where.column, [*(self.where.values or ()), *(self.where.not_in or ())])
        if self.split is not None:
            self._has_values("split", self.split.column, [value for values in self.split.tables.values() for value in values])

    def _has_values(self, key: str, name: str, values: list[Value]) -> None:
        if (column := self.read_columns.get(name)) is None:
            raise ValueError(f"{key}.column: '{name}' is no column that is read")
        wanted = _VALUES.get(column.type)
        if wanted is None:
            raise ValueError(f"{key}.column: '{name}' must be a string, a boolean or a whole number")
        for value in values:
            if type(value) is not wanted:
                hint = "; YAML takes yes, no, on, off for a boolean: put them in quotes" if isinstance(value, bool) else ""
                raise ValueError(f"{key}: {value!r} is no value of '{name}', a {column.type}{hint}")
            try:
                pa.scalar(value, column.arrow)
            except (pa.ArrowInvalid, OverflowError):
                raise ValueError(f"{key}: {value!r} does not fit into '{name}', a {column.type}") from None

    def _window_field(self) -> None:
        field = self.window.field
        if field is None:
            return
        if field not in self.columns:
            raise ValueError(f"window.field: '{field}' is no column of the schema")
        if self.columns[field].type not in ("timestamp", "date"):
            raise ValueError(f"window.field: '{field}' must be a timestamp or a date")


class Consumer(_Strict):
    """A named consumer and where its tables are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: ConsumerConfig
    staged: Path
    dead_letters: Path
    shared: bool = Field(default=False, description="the tables have rows of other topics, too")

    @model_validator(mode="after")
    def _name_is_plain(self) -> Self:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"consumer name '{self.name}': small letters, digits and _, a letter first, at most 64")
        return self

    @property
    def group(self) -> str:
        """The Kafka consumer group."""
        return self.config.group or f"weir-{self.name}"

    @property
    def of_several(self) -> bool:
        """Whether the tables hold rows of several topics, which shadow tables are not for."""
        return self.shared or self.config.only_topic is None

    def of_topic(self, topic: str, sharing: int = 1) -> "Consumer":
        """The same consumer as far as one of its topics goes, with its share of the memory that `sharing` topics have.

        Tables, group and positions (which name the topic) are the same.
        """
        config = self.config
        batch = config.batch.model_copy(update={"max_bytes": max(1024, config.batch.max_bytes // sharing)})
        alone: dict[str, Any] = {"only_topic": topic, "topics": None, "topic_pattern": None, "batch": batch}
        if config.only_topic is None and (name := config.membership.instance_id) is not None:
            alone["membership"] = config.membership.model_copy(update={"instance_id": f"{name}-{topic}"[:249]})
        return self.model_copy(update={"config": config.model_copy(update=alone), "shared": self.of_several})
