"""What a job's output holds, read from its Delta log alone: no Spark, no data, milliseconds.

A *fingerprint* is a hash of the job's code and parameters and of the content of its inputs, by window or (mode full) for all of
it. The output carries it in its partition column `_inputs`, atomic with the rows. A window whose result has no rows cannot carry
it: an application transaction `<job>/<window>` in the same commit does, which is believed only while the window has no rows.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Transaction

from consumers.staging.history import commit_infos
from consumers.staging.schema import WINDOW
from orchestration.compute.changes import data_changed
from orchestration.compute.job import WHOLE, Job
from orchestration.compute.marks import transactions
from orchestration.compute.pins import files_of
from orchestration.compute.record import Publication, publication_in

INPUTS = "_inputs"
BUCKET = "_bucket"
NO_TABLE = -1


@dataclass(frozen=True)
class Output:
    """An output table as it is; version -1 is no table yet.

    `fingerprints` and `rows` are by window, of the windows that have rows. `published` counts the publications of the job. `last`
    is the newest, and `foreign` names a commit that changed data since, which was none.
    """

    version: int = NO_TABLE
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    published: int = 0
    last: Publication | None = None
    foreign: str = ""
    table: DeltaTable | None = None

    def holds(self, job: str, window: str, fingerprint: str) -> bool:
        """Whether the window is what this fingerprint gives."""
        if window in self.fingerprints:
            return self.fingerprints[window] == fingerprint
        return self._marks.get(_mark(job, window)) == _mark_version(fingerprint)

    def known(self, job: str, name: str) -> int | None:
        """The version of an input up to which it was computed; None before."""
        return self.table.transaction_version(input_id(job, name)) if self.table is not None else None

    @cached_property
    def _marks(self) -> Mapping[str, int]:
        return transactions(self.table) if self.table is not None else {}


def read_output(job: Job) -> Output:
    """What the output holds now."""
    if not DeltaTable.is_deltatable(str(job.output)):
        return Output()
    table = DeltaTable(str(job.output))
    partition_by = tuple(table.metadata().partition_columns)
    rows, fingerprints = _held(table, job, partition_by)
    last = _last(table, job.name)
    foreign = data_changed(job.output, last.version, table.version()) if last else ""
    published = table.transaction_version(published_id(job.name)) or 0
    return Output(table.version(), fingerprints, rows, partition_by, published, last, foreign, table)


def _held(table: DeltaTable, job: Job, partition_by: tuple[str, ...]) -> tuple[dict[str, int], dict[str, str]]:
    """Rows and fingerprint of each window that has rows."""
    if INPUTS not in partition_by:
        total = pc.sum(pa.table(table.get_add_actions())["num_records"]).as_py()
        return ({} if total is None else {WHOLE: total}), {}
    rows: dict[str, int] = defaultdict(int)
    marks: dict[str, set[str]] = defaultdict(set)
    windowed = job.windowed and WINDOW in partition_by
    for action in files_of(table):
        window = str(action[f"partition.{WINDOW}"]) if windowed else WHOLE
        rows[window] += int(str(action["num_records"] or 0))
        marks[window].add(str(action[f"partition.{INPUTS}"]))
    # Two fingerprints in one window were not written by a job: they match nothing, so the window is computed again.
    found = {window: "|".join(sorted(each)) for window, each in marks.items()}
    return dict(rows), found if laid_out(job, partition_by) else {}


def laid_out(job: Job, partition_by: tuple[str, ...]) -> bool:
    """Whether a table is partitioned as the job's mode partitions its output."""
    if job.mode == "incremental":
        return partition_by in {(), (WINDOW,)}
    return partition_by == {"window": (WINDOW, INPUTS), "full": (INPUTS,), "merge": (BUCKET,)}[job.mode]


def published_id(job: str) -> str:
    """The application transaction that counts publications: of two at once, Delta takes one."""
    return f"{job}/published"


def input_id(job: str, name: str) -> str:
    """The application transaction that holds the version of an input up to which it was computed."""
    return f"{job}/input/{name}"


def empty_mark(job: str, window: str, fingerprint: str) -> Transaction:
    """The application transaction that says: from these inputs and this code come no rows."""
    return Transaction(_mark(job, window), _mark_version(fingerprint))


def _last(table: DeltaTable, job: str) -> Publication | None:
    """The newest publication, which nothing but maintenance and strangers may have followed."""
    if table.transaction_version(published_id(job)) is None:
        return None
    for version, info in commit_infos(table, -1):
        found = publication_in(info, version)
        if found is not None and found.job == job:
            return found
    return None


def _mark(job: str, window: str) -> str:
    return f"{job}/{window}"


def _mark_version(fingerprint: str) -> int:
    return int(fingerprint, 16) >> 1  # an application transaction's version is a signed 64-bit number
