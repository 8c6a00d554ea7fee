"""What a `SparkJob`'s YAML may say: the typed form of its attributes. Validation happens here and nowhere
later.
"""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from consumers.config import LagLimits
from orchestration.components.spark_plan import load_function


def _importable(dotted: str) -> str:
    load_function(dotted)
    return dotted


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("a day such as 2013-01-01") from None


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Function = Annotated[str, AfterValidator(_importable)]
Day = Annotated[str, AfterValidator(_day)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ConsumerInput(_Strict):
    """The staged table of a consumer."""

    consumer: Name


class TableInput(_Strict):
    """The output table of another job."""

    table: Name


class SparkJobConfig(_Strict):
    """The attributes of `defs/jobs/<name>/defs.yaml`."""

    function: Annotated[Function, Field(description="dotted path, such as spark_jobs.airport_delays.airport_delays")]
    inputs: Annotated[
        dict[str, ConsumerInput | TableInput],
        Field(min_length=1, description="name in the function's `inputs` → {consumer: …} or {table: …}"),
    ]
    output: Annotated[Name, Field(description="the table's and the asset's name")]
    windows: Annotated[
        Literal["day", "hour", "none"],
        Field(description="windows of inputs and output; none: the whole table is replaced"),
    ]
    first: Annotated[
        Day | None,
        Field(description="first day of the partitions, such as 2013-01-01; default: 2000 (hour: 2020)"),
    ] = None
    last: Annotated[Day | None, Field(description="last day of the partitions, for data that ends; default: today, for ever")] = (
        None
    )
    wait_for: Annotated[
        Literal["change", "complete"],
        Field(description="change: a window is computed whenever its input changed; complete: not before it is complete"),
    ] = "change"
    freshness: Annotated[LagLimits | None, Field(description="how old the newest materialization may be; default: any age")] = (
        None
    )
    max_windows_per_run: Annotated[int, Field(ge=1, le=10_000, description="of a run of the sensor or a backfill")] = 400
    settle_seconds: Annotated[float, Field(ge=0, description="runs start after this long without a commit")] = 10.0
    max_wait_seconds: Annotated[float, Field(ge=0, description="… or when work has waited this long")] = 60.0
    code_version: Annotated[str | None, Field(description="default: a hash of the function's file")] = None
    checks: Annotated[
        dict[Name, Function],
        Field(description="check name → dotted path of a function (table path) → AssetCheckResult"),
    ] = {}
    group: Name = "jobs"
    description: str | None = None
    owners: list[str] = []
    autostart: Annotated[bool, Field(description="the sensor starts switched on")] = True

    @model_validator(mode="after")
    def _waits_for_windows(self) -> Self:
        if self.wait_for == "complete" and (self.windows == "none" or not self.consumers):
            raise ValueError("wait_for: complete needs windows, and a consumer among the inputs: those are what is complete")
        return self

    @property
    def consumers(self) -> list[str]:
        """The consumers whose staged tables the job reads."""
        return sorted({source.consumer for source in self.inputs.values() if isinstance(source, ConsumerInput)})
