"""A column of a consumer's definition: its type, and where its value comes from."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from consumers.paths import parse

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


class Column(BaseModel):
    """A column: read from the field of the same name, or from where one of `path`, `header` and `key` says."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: Annotated[str, AfterValidator(_known_type)] = Field(
        description="string, boolean, byte, short, integer, long, float, double, decimal(p,s), date, timestamp, binary"
    )
    nullable: bool = Field(default=True, description="false: a record without this field is a dead letter")
    path: str | None = Field(default=None, description="where the value stands in a JSON record, such as a.b or items[0].id")
    header: str | None = Field(
        default=None, min_length=1, description="the column is this record header's last value, not a field"
    )
    key: bool = Field(default=False, description="true: the column is the record's key, not a field")

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.path is not None) + (self.header is not None) + self.key > 1:
            raise ValueError("one of path, header and key: a column comes from one place")
        if self.path is not None:
            parse(self.path)
        return self

    @property
    def of_value(self) -> bool:
        """Whether the column is read from the record's value."""
        return self.header is None and not self.key

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        return arrow_type(self.type)


def _short_columns(value: Any) -> Any:
    """`name: long` means `name: {type: long}`."""
    if not isinstance(value, dict):
        return value
    return {name: {"type": column} if isinstance(column, str) else column for name, column in value.items()}


Columns = Annotated[dict[str, Column], BeforeValidator(_short_columns)]


def check_names(key: str, columns: Mapping[str, Column]) -> None:
    """Raise ValueError unless there are columns, and all can be columns of a table. `key` says where they are declared."""
    if not columns:
        raise ValueError(f"{key}: at least one column")
    for name in columns:
        if not _COLUMN.fullmatch(name):
            raise ValueError(f"{key}: '{name}' cannot be a column name: letters, digits and _, a letter first")
    if len({name.lower() for name in columns}) < len(columns):
        raise ValueError(f"{key}: two columns differ only in case, which Spark cannot tell apart")
