"""One round over one table: compact, checkpoint, clean the log where that is safe, vacuum; and what that came to."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from deltalake import DeltaTable

from consumers.clock import Clock
from consumers.maintenance import Maintenance
from consumers.staging.history import commit_infos, file_actions
from consumers.staging.local import table_path
from consumers.staging.log import METADATA_KEY
from orchestration.maintenance.compaction import Compacted, compact
from orchestration.maintenance.health import Health, files, health
from orchestration.maintenance.vacuum import Reclaimed, vacuum

Kind = Literal["staged", "dead_letters", "output"]
_CHECKPOINT_EVERY = 10
_LOG_DAYS = 30
_NEVER_EXPIRES = "delta.setTransactionRetentionDuration"
_LOG_STAYS = "delta.enableExpiredLogCleanup"


@dataclass(frozen=True)
class Table:
    """A table to look after. `name` is also the asset's."""

    name: str
    kind: Kind
    path: Path
    settings: Maintenance = field(default_factory=Maintenance)


@dataclass(frozen=True)
class Round:
    """What a round did. `before` is the table as it was found; `unsafe` are settings of it under which positions get lost."""

    before: Health
    after: Health
    compacted: Compacted
    reclaimed: Reclaimed
    unsafe: tuple[str, ...] = ()


def maintain(table: Table, clock: Clock, protected: int | None = None) -> Round | None:
    """Look after a table; None where there is none yet. `protected` is the version that its slowest follower has read last.

    The log of a staged or dead-letter table is never cleaned up: it says which offsets every commit accounts for.
    """
    if not DeltaTable.is_deltatable(str(table.path)):
        return None
    loaded = DeltaTable(table.path)
    before, unsafe = _health(loaded, table), unsafe_settings(loaded, table.kind)
    compacted = compact(loaded, table.settings)
    loaded.update_incremental()
    if _versions_since_checkpoint(table.path, loaded.version()) >= _CHECKPOINT_EVERY:
        loaded.create_checkpoint()
    if table.kind == "output" and _log_may_go(loaded, protected, clock):
        loaded.cleanup_metadata()
    reclaimed = vacuum(loaded, table.settings.keep_hours, clock, protected)
    loaded.update_incremental()
    return Round(before, _health(loaded, table), compacted, reclaimed, unsafe)


def unsafe_settings(table: DeltaTable, kind: Kind) -> tuple[str, ...]:
    """Settings of the table under which somebody's clean-up would take positions, or what accounts for offsets."""
    found = table.metadata().configuration
    texts = []
    if _NEVER_EXPIRES in found:
        texts.append(f"{_NEVER_EXPIRES} is {found[_NEVER_EXPIRES]}: positions that rest for so long are forgotten. Unset it.")
    if kind != "output" and found.get(_LOG_STAYS) != "false":
        texts.append(f"{_LOG_STAYS} is not false: the log may expire, which accounts for the offsets. Set it to false.")
    return tuple(texts)


def _health(table: DeltaTable, about: Table) -> Health:
    return health(table.version(), files(table), about.settings.small_file_bytes, about.settings.files_per_window)


def _versions_since_checkpoint(path: Path, version: int) -> int:
    names = (path / "_delta_log").glob("*.checkpoint*.parquet")
    return version - max((int(name.name.partition(".")[0]) for name in names), default=0)


def _log_may_go(table: DeltaTable, protected: int | None, clock: Clock) -> bool:
    """Whether nobody needs what Delta would take of the log: everything older than 30 days.

    Needed are the job's newest publication, the compactions whose files are still there (they say which rows only moved to other
    files), and whatever came after the version that a follower has read last.
    """
    since = clock.time() - _LOG_DAYS * 86_400
    log = sorted((table_path(table) / "_delta_log").glob("*.json"))
    old = [int(commit.stem) for commit in log if commit.stem.isdigit() and commit.stat().st_mtime < since]
    if not old or (protected is not None and protected < old[-1]):
        return False
    active = {file.path for file in files(table)}
    infos = commit_infos(table, old[-1])
    return any(METADATA_KEY in info for _, info in infos) and not any(_moved(table, version) & active for version in old)


def _moved(table: DeltaTable, version: int) -> set[str]:
    """The files that a commit wrote without changing a row."""
    return {unquote(str(add["path"])) for add in file_actions(table, version)[0] if not add.get("dataChange", True)}
