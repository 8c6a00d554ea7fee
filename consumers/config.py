"""What one consumer is: the typed form of its YAML definition. Validation happens here and nowhere later."""

import re
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from consumers.membership import GroupSettings

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
RAW_TYPES = ("binary", "string")


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a type name (Delta's own names). Raises ValueError for any other name."""
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        if not (1 <= precision <= 38 and scale <= precision):
            raise ValueError(f"{name}: precision is 1 to 38, scale at most the precision")
        return pa.decimal128(precision, scale)
    if name not in _SIMPLE:
        raise ValueError(f"unknown type '{name}'; known: {', '.join(_SIMPLE)}, decimal(p,s)")
    return _SIMPLE[name]


def _known_type(name: str) -> str:
    arrow_type(name)
    return name


def _known_day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("a day such as 2013-01-01") from None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Column(_Strict):
    """A column of the staged table, read from the field of the same name."""

    type: Annotated[str, AfterValidator(_known_type)] = Field(
        description="string, boolean, byte, short, integer, long, float, double, decimal(p,s), date, timestamp, binary"
    )
    nullable: bool = Field(default=True, description="false: a record without this field is a dead letter")
    path: str | None = Field(default=None, description="where the value stands in a JSON record, such as a.b or items[0].id")
    header: str | None = Field(default=None, description="the column is this record header's last value, not a field")
    key: bool = Field(default=False, description="true: the column is the record's key, not a field")

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.path is not None) + (self.header is not None) + self.key > 1:
            raise ValueError("one of path, header and key: a column comes from one place")
        return self

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        return arrow_type(self.type)


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


class Where(_Strict):
    """The records that belong to this table; the others are passed over, and counted."""

    column: str
    values: list[str] = Field(alias="in", min_length=1, description="the column's values, as text")


class Split(_Strict):
    """One topic into several tables, each a consumer of its own named `<name>_<table>`."""

    column: str
    tables: dict[str, list[str]] = Field(min_length=1, description="table → the column's values; [] takes all the rest")


def _short_columns(value: Any) -> Any:
    """`name: long` means `name: {type: long}`."""
    if not isinstance(value, dict):
        return value
    return {name: {"type": column} if isinstance(column, str) else column for name, column in value.items()}


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


class ConsumerConfig(_Strict):
    """A consumer's definition: the attributes of `defs/consumers/<name>/defs.yaml`."""

    topic: Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]
    transform: str | None = Field(
        default=None, description="dotted path of a function: a pyarrow Table of the columns below → the same number of rows"
    )
    where: Where | None = Field(default=None, description="only the records with these values belong to the table")
    split: Split | None = Field(default=None, description="several tables from one topic, by a column's value")
    keep_raw: bool = Field(default=False, description="keep each record's bytes in `_value`: windows are rebuilt from the table")
    format: Literal["json", "raw"] = "json"
    columns: Annotated[dict[str, Column], BeforeValidator(_short_columns)] = Field(alias="schema")
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
    description: str | None = None
    owners: list[str] = []

    @model_validator(mode="after")
    def _schema_fits_format(self) -> Self:
        for name, column in self.columns.items():
            if not _COLUMN.fullmatch(name):
                raise ValueError(f"schema: '{name}' cannot be a column name: letters, digits and _, a letter first")
            if self.format == "json" and column.type == "binary":
                raise ValueError(f"schema: '{name}' is binary, which JSON cannot hold; use string, or format: raw")
        if not self.columns:
            raise ValueError("schema: at least one column")
        folded = [name.lower() for name in self.columns]
        if len(set(folded)) < len(folded):
            raise ValueError("schema: two columns differ only in case, which Spark cannot tell apart")
        if self.format == "raw":
            self._raw_schema()
        self._window_field()
        if (self.mode == "scheduled") != (self.schedule is not None):
            raise ValueError("schedule: `mode: scheduled` needs a cron line, and no other mode takes one")
        if self.membership.instance_id is not None and self.members > 1:
            raise ValueError(f"membership.instance_id: one id for {self.members} members; leave it out, or set members: 1")
        return self

    def _raw_schema(self) -> None:
        if [c.type in RAW_TYPES for c in self.columns.values()] != [True]:
            raise ValueError("schema: format raw has one column, of type binary or string")

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

    @model_validator(mode="after")
    def _name_is_plain(self) -> Self:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"consumer name '{self.name}': small letters, digits and _, a letter first, at most 64")
        return self

    @property
    def group(self) -> str:
        """The Kafka consumer group."""
        return self.config.group or f"weir-{self.name}"
