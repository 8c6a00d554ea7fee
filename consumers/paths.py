"""Where a value stands inside a JSON record: `a.b`, `items[0].id`. Knows no format and no column."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

Steps = tuple[str | int, ...]
"""Field names and array indices, from the record inwards; the first is a name."""
_STEP = re.compile(r"(?P<name>[^.\[\]\"\\\x00-\x1f]+)(?P<indices>(\[\d{1,6}\])*)")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is read: its type name, and whether its column must have one."""

    kind: str
    required: bool


@dataclass(frozen=True, slots=True)
class Items:
    """An array, and what its elements hold."""

    inner: "Node"


Object = dict[str, "Node"]
Node = Leaf | Items | Object


def parse(path: str) -> Steps:
    """The steps of a path. Raises ValueError."""
    steps: list[str | int] = []
    for part in path.split("."):
        if (found := _STEP.fullmatch(part)) is None:
            raise ValueError(f"path: '{path}' is no path such as a.b or items[0].id")
        steps.append(found["name"])
        steps += [int(index) for index in re.findall(r"\d+", found["indices"])]
    return tuple(steps)


def tree(leaves: Iterable[tuple[str, Leaf]]) -> Object:
    """All paths in one, in the order of their first fields. Raises ValueError where two cannot be of the same record."""
    root: Object = {}
    for path, leaf in leaves:
        name, *inner = parse(path)
        root[str(name)] = _joined(root.get(str(name)), tuple(inner), leaf, path)
    return root


def _joined(node: Node | None, steps: Steps, leaf: Leaf, path: str) -> Node:
    """`node` with a leaf below it."""
    if not steps:
        if node is None:
            return leaf
        if isinstance(node, Leaf) and node.kind == leaf.kind:
            return Leaf(leaf.kind, node.required or leaf.required)
    elif isinstance(steps[0], int):
        if node is None or isinstance(node, Items):
            return Items(_joined(node.inner if node else None, steps[1:], leaf, path))
    elif node is None or isinstance(node, dict):
        inner = node or {}
        return {**inner, steps[0]: _joined(inner.get(steps[0]), steps[1:], leaf, path)}
    raise ValueError(f"path: '{path}' ({leaf.kind}) and another column's path cannot both be in one record")
