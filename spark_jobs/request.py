"""What Spark is asked to compute, and what came of it: plain values that travel as JSON, so that a job runs alike in this
process, on a cluster and behind Spark Connect.

Whoever asks has decided everything: which versions and files are read, which windows are computed, what is checked. Nothing here
knows how a result becomes visible.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Mode = Literal["window", "full", "incremental", "merge"]
Scalar = str | int | float | bool
AuditKind = Literal["rows", "not_null", "unique", "between", "sql", "reconcile"]


@dataclass(frozen=True)
class Source:
    """An input table at a fixed Delta version: all of it, or the rows of some `windows`, or of some `files` (paths as the Delta
    log has them, relative to the table). With both it is the rows of either: the files then lie in other windows.

    `schema` is the table's, as the Delta log has it (JSON). With `files` it saves Spark from opening the table, which takes the
    longer the more commits it has.
    """

    path: str
    version: int
    windows: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    schema: str = ""


@dataclass(frozen=True)
class Audit:
    """A rule that a result must keep before it is published. A failed one that is `blocking` keeps readers on the old version.

    - `rows`: the number of rows is between `least` and `most`.
    - `not_null`: none of `columns` is null.
    - `unique`: no two rows are equal in `columns`.
    - `between`: the one column's values are between `least` and `most`; nulls pass.
    - `sql`: `sql`, a predicate over a row, is true for every row; null is not.
    - `reconcile`: the sum of `sql` (an expression over a row, such as `flights`) over the result is the number of records (rows
      that are no tombstones) that were read of the input `input`. A merge adds to rows that are there: its sum is what it added.

    The rows are those that were written: of a merge all rows of the buckets that it touched, of mode incremental the new ones.
    """

    name: str
    kind: AuditKind
    columns: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    sql: str = ""
    input: str = ""
    blocking: bool = True


@dataclass(frozen=True)
class AuditResult:
    """What an audit found. `said` is one sentence with numbers."""

    name: str
    passed: bool
    blocking: bool
    said: str


@dataclass(frozen=True)
class Request:
    """What to compute, and where to write it.

    `function` is a dotted path. `attempt` is the folder that gets the result as a Delta table of its own, inside of the output
    table's folder, where no reader looks. `output_version` is the output's version that `merge` starts from, -1 for no table or
    for a merge that starts over.

    `fingerprints` has what identifies each window's input (mode `window`; with mode `full` its one key is ""); the rows carry it
    in the partition column `_inputs`. `keys` and `buckets` are for mode `merge`.
    """

    job: str
    function: str
    mode: Mode
    inputs: Mapping[str, Source]
    output: str
    attempt: str
    output_version: int = -1
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    buckets: int = 16
    audits: tuple[Audit, ...] = ()

    @property
    def windows(self) -> list[str]:
        """The windows to compute, in order; empty for other modes."""
        return sorted(window for window in self.fingerprints if window)

    def to_json(self) -> str:
        """The form that travels."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> "Request":
        """The inverse of `to_json`."""
        raw: dict[str, Any] = json.loads(text)
        inputs = {name: Source(**_tuples(source)) for name, source in raw.pop("inputs").items()}
        audits = tuple(Audit(**_tuples(audit)) for audit in raw.pop("audits"))
        return Request(inputs=inputs, audits=audits, **_tuples(raw))


@dataclass(frozen=True)
class Result:
    """What was written to `attempt`, and how. `buckets` are those that `merge` wrote anew, to replace the output's.

    `application` and `ui` name Spark's application and the address of its pages; empty where there are none.
    """

    audits: tuple[AuditResult, ...] = ()
    buckets: tuple[str, ...] = ()
    application: str = ""
    ui: str = ""

    @property
    def refused(self) -> tuple[AuditResult, ...]:
        """The failed audits that keep the result from being published."""
        return tuple(audit for audit in self.audits if audit.blocking and not audit.passed)

    def to_json(self) -> str:
        """The form that travels."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> "Result":
        """The inverse of `to_json`."""
        raw: dict[str, Any] = json.loads(text)
        return Result(audits=tuple(AuditResult(**audit) for audit in raw.pop("audits")), **_tuples(raw))


def _tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
