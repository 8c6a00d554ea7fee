"""A staged table that somebody restored to an older version: since when, and up to which offsets it is whole now.

RESTORE takes rows away (or brings them back) and leaves application transactions as they are, so the positions would stand past
rows that are gone. Whoever writes the table next looks for it in the log and commits a *move* of all positions to where the
restored version stood (see `consumers.staging.follow`); everything after is read again.

Looking is cheap: a takeover and such a move say in the log up to which version they have looked (`looked`), and nobody looks
further back than that.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from consumers.errors import StorageError
from consumers.staging import positions as ids
from consumers.staging.history import commit_info, commit_infos, file_actions
from consumers.staging.local import table_path
from consumers.staging.log import METADATA_KEY, StagedCommit, commits
from consumers.staging.schema import WINDOW
from consumers.types import OffsetRange, Position, TopicPartition, hulls, topic_hash

_RESTORE = "RESTORE"
BY = "restore"
"""Who a move is by that follows a restore."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A RESTORE in a table's log: the version that it made, and the older one whose files the table had again then."""

    version: int
    target: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What follows from one: where positions (`seen`) have to be, so that nothing is lost or twice: at `starts`.

    `labels` name the incarnation of each partition's log. `undone` are offsets whose rewrites and replays went with it, and
    `windows` those that it changed. `looked` is the version of the table that all of this was found in.
    """

    restore: Restore
    seen: Mapping[TopicPartition, Position]
    starts: Mapping[TopicPartition, int]
    labels: Mapping[TopicPartition, str]
    undone: Mapping[TopicPartition, OffsetRange]
    windows: tuple[str, ...]
    looked: int


@dataclass
class RestoreWatch:
    """Looks for a restore that no move has followed yet. `clean` is the version up to which there is none."""

    clean: int = -1

    def look(self, table: DeltaTable) -> Restore | None:
        """The newest one, up to the loaded version."""
        bound = self.clean
        for version, info in commit_infos(table, self.clean):
            if version <= bound:
                break
            if info.get("operation") == _RESTORE:
                return Restore(version, _target(table, version, info))
            bound = max(bound, _looked(info))
        self.clean = table.version()
        return None

    def committed(self, version: int) -> None:
        """This version is a commit of ours, and so no restore."""
        if version == self.clean + 1:
            self.clean = version


def restores(table: DeltaTable, known: Sequence[StagedCommit]) -> list[Restore]:
    """All restores in the log, oldest first, up to the loaded version. `known` are other commits of it, not to be read again."""
    ours = {commit.version for commit in known}
    found = []
    for version in (version for version in range(table.version() + 1) if version not in ours):
        info = commit_info(table, version)
        if info is not None and info.get("operation") == _RESTORE:
            found.append(Restore(version, _target(table, version, info)))
    return found


def restored(table: DeltaTable, consumer: str, restore: Restore) -> Restored:
    """What follows from a restore for the loaded version. Raises `StorageError` where the log does not say any more."""
    log = commits(table)
    lives = _lives(log)
    starts = _whole_until(table, consumer, lives, restore)
    undone: dict[TopicPartition, OffsetRange] = {}
    for commit in log:
        if commit.kind in ("rewrite", "replay") and restore.target < commit.version < restore.version:
            undone = hulls(undone, commit.ranges)
    seen = {tp: ids.position(table, consumer, tp) for tp in starts}
    labels = _labels(table, consumer, seen, log)
    return Restored(restore, seen, starts, labels, undone, _windows(table, restore.version), table.version())


def _windows(table: DeltaTable, version: int) -> tuple[str, ...]:
    """The windows whose files a commit changed."""
    changed = (action.get("partitionValues") or {} for part in file_actions(table, version) for action in part)
    return tuple(sorted({values[WINDOW] for values in changed if values.get(WINDOW) is not None}))


@dataclass
class _Lives:
    """Per partition, at which version and offset each incarnation of its log began."""

    began: dict[TopicPartition, list[tuple[int, int]]] = field(default_factory=dict)

    def last(self, tp: TopicPartition, version: int) -> tuple[int, int]:
        """The newest one that began up to `version`; (-1, 0) where the log does not say."""
        return max((each for each in self.began.get(tp, ()) if each[0] <= version), default=(-1, 0))


def _lives(log: Sequence[StagedCommit]) -> _Lives:
    lives = _Lives()
    for commit in log:
        for tp, start in commit.starts.items() if commit.kind == "acquire" else ():
            lost = commit.lost.get(tp)
            # Empty after the topic was created again; from the new end on where the log was cut short.
            anew = lost is not None and (not len(lost) or lost.start == start)
            if anew or tp not in lives.began:
                lives.began.setdefault(tp, []).append((commit.version, start))
    return lives


def _whole_until(table: DeltaTable, consumer: str, lives: _Lives, restore: Restore | None) -> dict[TopicPartition, int]:
    """Per partition the offset that everything of its current incarnation is there before, in the loaded version."""
    now = _positions(table, consumer, lives)
    if restore is None:
        return now
    at_target, at_restore = _at(table, restore.target), _at(table, restore.version)
    before = _whole_until(at_target, consumer, lives, RestoreWatch().look(at_target))
    then = _positions(at_restore, consumer, lives)
    found = {}
    for tp, position in now.items():
        began, first = lives.last(tp, table.version())
        if began > restore.version:
            found[tp] = position
        else:
            kept = first if began > restore.target else before.get(tp, first)
            found[tp] = min(kept, then.get(tp, position), position)
    return found


def _positions(table: DeltaTable, consumer: str, lives: _Lives) -> dict[TopicPartition, int]:
    found = {tp: table.transaction_version(ids.position_id(consumer, tp)) for tp in lives.began}
    return {tp: offset for tp, offset in found.items() if offset is not None}


def _labels(
    table: DeltaTable, consumer: str, seen: Mapping[TopicPartition, Position], log: Sequence[StagedCommit]
) -> dict[TopicPartition, str]:
    known = {topic: ids.known_topic(table, consumer, topic) for topic in {tp.topic for tp in seen}}
    names: dict[str, str] = {}
    for commit in log:
        names |= {topic: topic_id for topic, topic_id in commit.topic_ids.items() if known.get(topic) == topic_hash(topic_id)}
    if unknown := sorted(known.keys() - names.keys()):
        raise StorageError(
            f"table {table.table_uri} was restored, and its log does not say any more which incarnation of the topic "
            f"'{unknown[0]}' its positions are of. Nothing was written. Move the positions by hand, with the job move_{consumer}."
        )
    return {tp: ids.label(names[tp.topic], position.cut) for tp, position in seen.items()}


def _looked(info: Mapping[str, Any]) -> int:
    text = info.get(METADATA_KEY, "")
    return int(json.loads(text).get("looked", -1)) if '"looked"' in text else -1


def _target(table: DeltaTable, version: int, info: Mapping[str, Any]) -> int:
    told = str((info.get("operationParameters") or {}).get("version"))
    return int(told) if told.isdigit() else _same_files(table, version)


def _same_files(table: DeltaTable, restore: int) -> int:
    """The newest version before a restore that had the same files, where it was restored to a time."""
    differing: set[str] = set()
    for version, (added, removed) in _back_from(table, restore):
        differing ^= {str(action["path"]) for action in added} ^ {str(action["path"]) for action in removed}
        if not differing:
            return version - 1
    raise _unknown(table, restore)


def _back_from(table: DeltaTable, version: int) -> Iterator[tuple[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]]]:
    for each in range(version, 0, -1):
        try:
            yield each, file_actions(table, each)
        except FileNotFoundError:
            return


def _at(table: DeltaTable, version: int) -> DeltaTable:
    try:
        return DeltaTable(table_path(table), version=version)
    except DeltaError as error:
        raise _unknown(table, version) from error


def _unknown(table: DeltaTable, version: int) -> StorageError:
    return StorageError(
        f"table {table.table_uri} was restored, and its log does not go back far enough to say where its positions stood "
        f"(version {version}). Nothing was written. Move the positions by hand to where its rows end, with the job move_<name>."
    )
