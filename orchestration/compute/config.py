"""What a `SparkJob`'s YAML may say: the typed form of its attributes. Validation happens here and nowhere later."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from consumers.config import LagLimits
from consumers.maintenance import Maintenance, MaintenanceKey
from orchestration.compute.audits import AuditConfig
from orchestration.compute.windows import Reach
from orchestration.feed.config import Feed
from orchestration.settings import DEAD_LETTERS, STAGED
from spark_jobs.functions import check_signature, load_function
from spark_jobs.request import Mode


def _importable(dotted: str) -> str:
    load_function(dotted)
    return dotted


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("a day such as 2013-01-01") from None


def _free(name: str) -> str:
    if name in (STAGED, DEAD_LETTERS):
        raise ValueError(f"'{name}' is the folder of the consumers' tables, which the job's own would hold; choose another name")
    return name


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Function = Annotated[str, AfterValidator(_importable)]
Day = Annotated[str, AfterValidator(_day)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Input(_Strict):
    windows: Annotated[Literal["day", "hour", "none"] | None, Field(description="its windows; default: the job's")] = None
    look_back: Annotated[int, Field(ge=0, le=10_000, description="read so many windows before, too")] = 0
    up_to: Annotated[bool, Field(description="read all windows before, too")] = False

    def reach(self, windows: str) -> Reach:
        """Which of its windows a window of a job with these `windows` is computed from."""
        contained = windows == "day" and self.windows == "hour"
        return Reach(contained, self.look_back, self.up_to, whole=self.windows == "none")

    @property
    def mapped(self) -> bool:
        """Whether anything is said about windows."""
        return self.windows is not None or self.look_back > 0 or self.up_to


class ConsumerInput(_Input):
    """The staged table of a consumer."""

    consumer: Name


class TableInput(_Input):
    """The output table of another job."""

    table: Name


class SparkJobConfig(_Strict):
    """The attributes of `defs/jobs/<name>/defs.yaml`."""

    function: Annotated[Function, Field(description="dotted path, such as spark_jobs.airport_delays.airport_delays")]
    inputs: Annotated[
        dict[str, ConsumerInput | TableInput],
        Field(min_length=1, description="name of the function's argument → {consumer: …} or {table: …}"),
    ]
    output: Annotated[Name, AfterValidator(_free), Field(description="the table's and the asset's name")]
    windows: Annotated[Literal["day", "hour", "none"], Field(description="windows of the output, which mode window needs")] = (
        "none"
    )
    mode: Annotated[
        Mode,
        Field(
            description="window: windows whose input changed; full: all of it, when anything changed; incremental: rows of new "
            "commits; merge: new rows by key"
        ),
    ] = "full"
    keys: Annotated[tuple[str, ...], Field(strict=False, description="mode merge: the columns that name a row")] = ()
    buckets: Annotated[int, Field(ge=1, le=10_000, description="mode merge: into so many parts the keys are spread")] = 16
    follows: Annotated[Name | None, Field(description="the input whose commits are followed; default: the only one")] = None
    parameters: Annotated[
        dict[Name, str | bool | int | float], Field(description="keyword-only argument of the function → its value")
    ] = {}
    audits: Annotated[dict[Name, AuditConfig], Field(description="name → a rule that a result must keep to be published")] = {}
    resources: Annotated[dict[str, str], Field(description="Spark's own settings for this job, where the runtime takes any")] = {}
    first: Annotated[
        Day | None, Field(description="first day of the partitions, such as 2013-01-01; default: 2000 (hour: 2020)")
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
    max_windows_per_run: Annotated[int, Field(ge=1, le=10_000, description="of a run of the sensor or a backfill")] = 10_000
    settle_seconds: Annotated[float, Field(ge=0, description="runs start after this long without a commit")] = 10.0
    max_wait_seconds: Annotated[float, Field(ge=0, description="… or when work has waited this long")] = 60.0
    code_version: Annotated[str | None, Field(description="default: a hash of the function's file")] = None
    checks: Annotated[
        dict[Name, Function],
        Field(description="check name → dotted path of a function (table path, inputs) → AssetCheckResult"),
    ] = {}
    publish: Annotated[Feed | None, Field(description="a topic that gets the rows that change")] = None
    maintenance: MaintenanceKey = Maintenance()
    group: Name = "jobs"
    description: str | None = None
    owners: list[str] = []
    autostart: Annotated[bool, Field(description="the sensor starts switched on")] = True

    @model_validator(mode="before")
    @classmethod
    def _mode_by_windows(cls, value: object) -> object:
        """Who names windows means them."""
        if isinstance(value, dict) and "mode" not in value and value.get("windows", "none") != "none":
            return {**value, "mode": "window"}
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problem := next(self._problems(), ""):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _fits_the_function(self) -> Self:
        check_signature(load_function(self.function), self.inputs, self.parameters, self.mode)
        return self

    def _problems(self) -> Iterator[str]:
        follows = self.mode in {"incremental", "merge"}
        if self.wait_for == "complete" and (self.windows == "none" or not self.consumers):
            yield "wait_for: complete needs windows, and a consumer among the inputs: those are what is complete"
        if (self.mode == "window") != (self.windows != "none"):
            yield f"windows: {self.windows} does not go with mode: {self.mode}; mode window needs day or hour, the others none"
        if (self.mode == "merge") != bool(self.keys):
            yield "keys: mode merge needs them, and no other mode has any"
        if self.follows is not None and (not follows or self.follows not in self.inputs):
            yield "follows: names an input, in mode incremental or merge"
        if follows and self.follows is None and len(self.inputs) > 1:
            yield "follows: with several inputs it must say whose commits are followed"
        if twice := sorted(self.audits.keys() & self.checks.keys()):
            yield f"audits: {', '.join(twice)} are names of checks, too"
        for name, source in self.inputs.items():
            if source.mapped and self.mode != "window":
                yield f"inputs.{name}: windows, look_back and up_to are for mode window"
            if source.windows == "day" and self.windows == "hour":
                yield f"inputs.{name}: an hour cannot be computed from a day alone; compute days, or say windows: none"
        for name, audit in self.audits.items():
            if audit.reconcile is not None and audit.reconcile.input not in self.inputs:
                yield f"audits.{name}: there is no input '{audit.reconcile.input}'"

    @property
    def consumers(self) -> list[str]:
        """The consumers whose staged tables the job reads."""
        return sorted({source.consumer for source in self.inputs.values() if isinstance(source, ConsumerInput)})
