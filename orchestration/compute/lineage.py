"""Where rows come from: from an output's commit back through the tables that it was computed from, to offsets in Kafka."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from consumers.errors import ConfigError
from consumers.staging.log import StagedCommit, newest_first
from orchestration.compute.record import Offsets, Publication, Used, publications

_NAMED = 3
_NAME = re.compile(r"\w{1,128}(/\w{1,128})?")
"""A table's path in the tables' folder, which no name can lead out of."""


@dataclass(frozen=True)
class Origin:
    """A table at a version, or some of its windows (None: all).

    `publication` made the rows, where a job did; `inputs` are what it read. `ranges` are the offsets of a staged table's rows by
    `topic/partition`, of `commits` commits.
    """

    table: str
    version: int
    windows: tuple[str, ...] | None = None
    publication: Publication | None = None
    ranges: dict[str, list[Offsets]] | None = None
    commits: int = 0
    inputs: tuple[tuple[str, "Origin"], ...] = ()


def lineage(tables: Path, name: str, version: int | None = None, window: str | None = None) -> Origin:
    """The origin of a table's rows at a version (default: the newest), or of one window's.

    `name` is the table's path from the tables' folder. Raises ConfigError for a table, a version or a window that there is not.
    """
    path = tables / name
    if not _NAME.fullmatch(name) or not DeltaTable.is_deltatable(str(path)):
        raise ConfigError(f"there is no table {path}. `weir lineage` wants its path in {tables}, such as airport_delays")
    newest = DeltaTable(str(path)).version()
    if version is not None and not 0 <= version <= newest:
        raise ConfigError(f"{name} has no version {version}: its newest is {newest}")
    found = _origin(tables, name, newest if version is None else version, None if window is None else (window,))
    if window is not None and found.publication is None and not found.commits:
        raise ConfigError(f"no commit of {name} up to version {found.version} touched the window {window}")
    return found


def told(origin: Origin, indent: str = "", label: str = "") -> Iterator[str]:
    """The same as lines of text, inputs below their outputs."""
    where = f" window {_some(origin.windows)}" if origin.windows is not None else ""
    yield f"{indent}{label}{origin.table} version {origin.version}{where}"
    inner = indent + "  "
    if origin.publication is not None:
        yield from (inner + line for line in _told_of(origin.publication))
    if origin.ranges is not None:
        yield f"{inner}{origin.commits:,} commits of ingestion"
        for tp, held in sorted(origin.ranges.items()):
            yield f"{inner}{tp}: {', '.join(f'[{start}, {end})' for start, end in held)}"
    for name, each in origin.inputs:
        yield from told(each, inner, f"{name}: ")


def _told_of(made: Publication) -> Iterator[str]:
    yield f"published as version {made.version} by {made.job} ({made.mode}, code {made.code_version}): {made.rows:,} rows"
    yield f"because: {made.reason}"
    for name, value in made.parameters.items():
        yield f"parameter {name}: {value}"
    for audit in made.audits:
        yield f"audit {audit.name}: {'passed' if audit.passed else 'FAILED'}, {audit.said}"
    for name, used in made.inputs.items():
        new = ", ".join(f"{tp} [{start}, {end})" for tp, (start, end) in sorted(used.ranges.items()))
        if new:
            yield f"new in {name} since the publication before: {new}"


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{names[0]} to {names[-1]} ({len(names)})"


def _origin(tables: Path, name: str, version: int, windows: tuple[str, ...] | None) -> Origin:
    table = DeltaTable(str(tables / name), version=version)
    made = next((each for each in publications(table) if _made(each, windows)), None)
    if made is None:
        return _staged(table, name, version, windows)
    inputs = tuple((label, _input(tables, made, used, windows)) for label, used in made.inputs.items())
    return Origin(name, version, windows, made, inputs=inputs)


def _input(tables: Path, made: Publication, used: Used, windows: tuple[str, ...] | None) -> Origin:
    path = tables / used.path
    if not DeltaTable.is_deltatable(str(path)):
        return Origin(used.path, used.version, windows)
    wanted = windows
    if windows is not None and (made.mode in {"full", "merge"} or used.reach.whole):
        wanted = None
    elif windows is not None and not used.reach.same:
        held = sorted({str(each["_window"]) for each in DeltaTable(str(path), version=used.version).partitions()})
        wanted = tuple(sorted({key for window in windows for key in used.reach.of(window, held)}))
    return _origin(tables, used.path, used.version, wanted)


def _made(publication: Publication, windows: tuple[str, ...] | None) -> bool:
    """Whether a publication, the newest that does, made what these windows hold."""
    if windows is None or publication.mode != "window":
        return True
    return not set(windows).isdisjoint(publication.windows)


def _staged(table: DeltaTable, name: str, version: int, windows: tuple[str, ...] | None) -> Origin:
    found = [
        commit
        for commit in newest_first(table)
        if commit.ranges and (windows is None or not commit.windows.keys().isdisjoint(windows))
    ]
    return Origin(name, version, windows, ranges=_ranges(found), commits=len(found))


def _ranges(found: Iterable[StagedCommit]) -> dict[str, list[Offsets]]:
    """By partition, ascending; ranges that touch are one."""
    ranges: dict[str, list[Offsets]] = {}
    pieces = sorted((str(tp), held.start, held.end) for commit in found for tp, held in commit.ranges.items() if len(held))
    for tp, start, end in pieces:
        held = ranges.setdefault(tp, [])
        if held and start <= held[-1][1]:
            held[-1] = (held[-1][0], max(end, held[-1][1]))
        else:
            held.append((start, end))
    return ranges
