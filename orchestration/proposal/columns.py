"""From the fields that were seen to the columns of a schema, and what is to be said about each."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from consumers.config import Column
from orchestration.proposal.fields import Field, Path, Seen

ENOUGH = 100
"""Records from which on a field that always had a value is proposed as `nullable: false`."""
_STRANGE = re.compile(r"[.\[\]\"\\\x00-\x1f]|\{\{")  # two braces are an environment variable in YAML
_HEADROOM = 1000
_INTEGER = 2**31
_MOSTLY = 0.9
_NUMBERS = ("integer", "fraction", "too large a number")
_TEXTS = ("string", "timestamp", "date")


@dataclass(frozen=True)
class Proposed:
    """A column, the field that it is read from, an example of its values, and what speaks against it (may be empty)."""

    name: str
    column: Column
    path: Path
    example: str
    note: str


@dataclass(frozen=True)
class Choice:
    """The columns by name, and the fields that can be none, each with the reason."""

    columns: Mapping[str, Proposed]
    left_out: tuple[str, ...]


def choose(seen: Seen) -> Choice:
    """A column for every field that can be one."""
    columns: dict[str, Proposed] = {}
    left_out = []
    for field in seen.fields.values():
        where = ".".join(field.path)
        if reason := _impossible(field) or _overlap(field, seen):
            left_out.append(f"{where}: {reason}")
            continue
        kind = _kind(field)
        name = _name(field.path, columns)
        nullable = seen.objects < ENOUGH or field.values < seen.objects
        path = where if field.path != (name,) else None
        column = Column(type=kind, nullable=nullable, path=path)
        columns[name] = Proposed(name, column, field.path, _example(field, kind), _note(field, kind, seen.objects))
    return Choice(columns, tuple(left_out))


def _impossible(field: Field) -> str:
    """Why a field is no column; empty where it can be one."""
    kinds = field.kinds
    if not kinds:
        return "always null, so its type is not known"
    if max(kinds["list"], kinds["object"]) * 2 > field.values:
        example = _first(field, "list", "object")
        return f"a list or an empty object, such as {example}: name an element by `path: {'.'.join(field.path)}[0]`"
    if strange := [part for part in field.path if not part or _STRANGE.search(part)]:
        return f"'{strange[0]}' cannot be part of a path"
    return ""


def _overlap(field: Field, seen: Seen) -> str:
    """Why a field that is an object in some records and a value in others is no column: the rarer of the two is not."""
    for other in seen.fields.values():
        short, long = sorted((field.path, other.path), key=len)
        if short != long and long[: len(short)] == short and (field.values, len(field.path)) < (other.values, len(other.path)):
            return f"an object in some records and a value in others, which are more often {'.'.join(other.path)}"
    return ""


def _kind(field: Field) -> str:
    """The type that most values have."""
    kinds = field.kinds
    numbers, texts = _sum(kinds, _NUMBERS), _sum(kinds, _TEXTS)
    if kinds["boolean"] > max(numbers, texts):
        return "boolean"
    if numbers >= texts:
        return _number(field)
    return next((kind for kind in ("timestamp", "date") if kinds[kind] >= _MOSTLY * texts), "string")


def _number(field: Field) -> str:
    kinds = field.kinds
    if kinds["fraction"]:
        return "double"
    if kinds["too large a number"] > kinds["integer"]:
        return "decimal(38,0)"
    # What counts up goes on doing so, and a column cannot be made wider later.
    counts_up = field.path[-1].lower().endswith(("id", "number", "count"))
    fits = max(field.high, -field.low) * _HEADROOM < _INTEGER
    return "integer" if fits and not counts_up else "long"


_TAKES = {
    "boolean": ("boolean",),
    "integer": ("integer",),
    "long": ("integer",),
    "double": ("integer", "fraction"),
    "decimal(38,0)": _NUMBERS,
    "timestamp": ("timestamp",),
    "date": ("date",),
    "string": _TEXTS,
}


def _note(field: Field, kind: str, objects: int) -> str:
    """Where it is missing, and which values would be dead letters."""
    parts = []
    if field.values < objects:
        parts.append(f"missing or null in {objects - field.values:,} of {objects:,}")
    for other, count in field.kinds.most_common():
        if other not in _TAKES[kind]:
            are = "1 value is" if count == 1 else f"{count:,} values are"
            parts.append(f"CONFLICT: {are} {_article(other)}, such as {field.examples[other]}: dead letters")
    if kind == "string" and field.kinds["string"] < field.values and _sum(field.kinds, ("timestamp", "date")):
        parts.append(f"some are times, such as {_first(field, 'timestamp', 'date')}")
    return "; ".join(parts)


def _article(kind: str) -> str:
    return kind if kind.startswith("too ") else f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def _example(field: Field, kind: str) -> str:
    return _first(field, *_TAKES[kind])


def _first(field: Field, *kinds: str) -> str:
    return next((field.examples[kind] for kind in kinds if field.kinds[kind]), "")


def _sum(kinds: Mapping[str, int], names: Iterable[str]) -> int:
    return sum(kinds.get(name, 0) for name in names)


def _name(path: Path, taken: Mapping[str, Proposed]) -> str:
    """A column's name that Spark can tell from all others."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", "_".join(path)).lstrip("_0123456789")[:120] or "field"
    folded = {each.lower() for each in taken}
    number = 2
    unique = name
    while unique.lower() in folded:
        unique, number = f"{name}_{number}", number + 1
    return unique
