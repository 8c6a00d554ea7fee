"""What a commit that publishes says about itself, in the output's log: one `Publication` for each.

It is written into the commit that holds the rows, so that table and log cannot disagree. Lineage, barriers and what audits found
are read from it; whether something is to be computed needs only the newest one.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable

from consumers.staging.history import commit_infos
from consumers.staging.log import METADATA_KEY
from orchestration.compute.windows import SAME, Reach
from spark_jobs.request import AuditResult, Scalar

KIND = "publish"
Offsets = tuple[int, int]
"""From an offset (included) to another (excluded)."""


@dataclass(frozen=True)
class Used:
    """An input as it was read: its path from the tables' folder, its Delta version and the table's id.

    `windows` is how many windows were read, -1 where it was not read by window. `roots` are the tables that it was computed from
    itself, by path, and their versions. `ranges` are the offsets (by `topic/partition`) that came since the last publication.
    """

    path: str
    version: int
    table_id: str = ""
    windows: int = -1
    reach: Reach = SAME
    roots: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, Offsets] = field(default_factory=dict)


@dataclass(frozen=True)
class Publication:
    """One commit of a job's result.

    `windows` or `buckets` were replaced; `whole`: all of the table was. `plain`: rows were only added, in the order of their
    offsets, so that a merge may follow. `reason` says in words why it was computed.
    """

    job: str
    mode: str
    identity: str
    code_version: str
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    inputs: Mapping[str, Used] = field(default_factory=dict)
    windows: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    whole: bool = False
    plain: bool = False
    rows: int = 0
    files: int = 0
    bytes: int = 0
    reason: str = ""
    audits: tuple[AuditResult, ...] = ()
    application: str = ""
    ui: str = ""
    version: int = -1
    committed_at_ms: int = 0

    def to_json(self) -> str:
        """The form that the Delta commit holds; version and time are the log's own."""
        raw = dataclasses.asdict(self)
        del raw["version"], raw["committed_at_ms"]
        return json.dumps({"kind": KIND, **raw}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str, version: int = -1, committed_at_ms: int = 0) -> "Publication | None":
        """The inverse of `to_json`; None for what says something else."""
        raw: dict[str, Any] = json.loads(text)
        if raw.pop("kind", None) != KIND:
            return None
        return Publication(
            inputs={name: _used(used) for name, used in raw.pop("inputs").items()},
            audits=tuple(AuditResult(**audit) for audit in raw.pop("audits")),
            windows=tuple(raw.pop("windows")),
            buckets=tuple(raw.pop("buckets")),
            version=version,
            committed_at_ms=committed_at_ms,
            **raw,
        )


def publications(table: DeltaTable) -> Iterator[Publication]:
    """Those of the loaded version and before, newest first, as far back as the log is kept, read as they are asked for.

    None for a table that ingestion writes.
    """
    for version, info in commit_infos(table, -1):
        found = publication_in(info, version)
        if found is None and METADATA_KEY in info:
            return
        if found is not None:
            yield found


def publication_in(info: Mapping[str, Any], version: int) -> Publication | None:
    """What a commit's `commitInfo` says, where it publishes."""
    if METADATA_KEY not in info:
        return None
    return Publication.from_json(info[METADATA_KEY], version, int(info.get("timestamp", 0)))


def _used(raw: dict[str, Any]) -> Used:
    ranges = {tp: (int(start), int(end)) for tp, (start, end) in raw.pop("ranges").items()}
    return Used(reach=Reach(**raw.pop("reach")), ranges=ranges, **raw)
