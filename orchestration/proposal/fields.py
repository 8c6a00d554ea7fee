"""What JSON records hold: their fields, however deep, with the kinds of values that were seen in each."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from consumers.config import Column
from consumers.formats import JsonDecoder

Path = tuple[str, ...]
_LONG = 2**63
_SHOWN = 40
_decode = msgspec.json.Decoder().decode


@dataclass
class Field:
    """One field: in how many records it has a value, of which kinds, an example of each, and the extent of whole numbers."""

    path: Path
    values: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    low: int = 0
    high: int = 0
    texts: list[str] = field(default_factory=list)

    def see(self, value: Any) -> None:
        """Count one value."""
        kind = _kind(value)
        self.values += 1
        self.kinds[kind] += 1
        self.examples.setdefault(kind, shortened(json.dumps(value, ensure_ascii=False)))
        if kind == "integer":
            self.low, self.high = min(self.low, value), max(self.high, value)
        elif kind == "string":
            self.texts.append(value)

    def tell_times(self) -> None:
        """Count apart, among the texts, those that the decoder takes for a timestamp or a date."""
        for kind in ("timestamp", "date"):
            good = times(self.texts, kind)
            if good.null_count == len(self.texts):
                continue
            self.kinds[kind] = len(good) - good.null_count
            self.kinds["string"] -= self.kinds[kind]
            self.examples[kind] = next(json.dumps(text) for text, at in zip(self.texts, good, strict=True) if at.is_valid)
            rest = (text for text, at in zip(self.texts, good, strict=True) if not at.is_valid)
            self.examples["string"] = shortened(json.dumps(next(rest, "")))
            break
        self.kinds = +self.kinds


@dataclass
class Seen:
    """What was found in `objects` JSON objects, and why the other values are none (reason → how many)."""

    objects: int = 0
    fields: dict[Path, Field] = field(default_factory=dict)
    broken: Counter[str] = field(default_factory=Counter)
    texts: int = 0


def look(values: Iterable[bytes]) -> Seen:
    """Look at values one by one."""
    seen = Seen()
    for value in values:
        seen.texts += _is_text(value)
        try:
            found = _decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            seen.broken[f"not JSON: {error}"] += 1
            continue
        if isinstance(found, dict):
            seen.objects += 1
            _enter(seen.fields, (), found)
        else:
            seen.broken[f"JSON, but no object: {shortened(json.dumps(found))}"] += 1
    for each in seen.fields.values():
        each.tell_times()
    return seen


def times(texts: Sequence[str], kind: str) -> pa.Array:
    """Each text as a timestamp or date, as the decoder reads it; null where it is none."""
    decoder = JsonDecoder({"at": Column(type=kind)})
    decoded = decoder.decode(pa.array([msgspec.json.encode({"at": text}) for text in texts], pa.binary()))
    found = [None] * len(texts)
    for index, value in zip(decoded.indices.to_pylist(), decoded.rows["at"].to_pylist(), strict=True):
        found[index] = value
    return pa.array(found, decoder.schema.field(0).type)


def shortened(text: str) -> str:
    """At most 40 characters, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def _enter(fields: dict[Path, Field], above: Path, found: dict[str, Any]) -> None:
    for name, value in found.items():
        path = (*above, name)
        if isinstance(value, dict) and value:
            _enter(fields, path, value)
            continue
        at = fields.setdefault(path, Field(path))
        if value is not None:
            at.see(value)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -_LONG <= value < _LONG else "too large a number"
    return {float: "fraction", str: "string", list: "list", dict: "object"}[type(value)]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
