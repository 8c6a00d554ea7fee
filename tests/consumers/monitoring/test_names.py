"""The list of measurements: a typo does not pass the type check, each is described, documented and taken somewhere."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from consumers.metrics import MEANING, Counter, Gauge, Histogram

REPO = Path(__file__).parents[3]
KINDS = {"count": set(get_args(Counter)), "gauge": set(get_args(Gauge)), "observe": set(get_args(Histogram))}
NAMES = set().union(*KINDS.values())

SNIPPET = """
from consumers.metrics import Metrics
def measure(metrics: Metrics) -> None:
    metrics.count("records_in")
    metrics.count("record_in")
    metrics.gauge("records_in", 1.0)
    metrics.observe("commit_seconds", 1.0)
"""


def test_a_typo_and_a_wrong_kind_do_not_pass_the_type_check() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={os.devnull}", "-c", SNIPPET]
    found = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120, check=False)
    errors = [line.split(":")[1] for line in found.stdout.splitlines() if "error" in line and line.startswith("<string>")]
    assert errors == ["5", "6"], found.stdout + found.stderr


def test_every_name_is_of_one_kind_and_has_a_meaning() -> None:
    assert sum(map(len, KINDS.values())) == len(NAMES)
    assert set(MEANING) == NAMES


def test_every_name_is_in_the_documentation_with_its_meaning() -> None:
    text = (REPO / "docs" / "monitoring.md").read_text()
    assert [name for name in MEANING if f"| `{name}` | {MEANING[name]} |" not in text] == []


def emitted(kind: str) -> Iterator[str]:
    """The names that some call of the code base hands to a method of this kind."""
    for package in ("consumers", "orchestration"):
        for path in (REPO / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == kind and node.args:
                    yield from (part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant))


def test_every_name_is_measured_somewhere() -> None:
    dead = {kind: names - set(emitted(kind)) for kind, names in KINDS.items()}
    assert dead == {kind: set() for kind in KINDS}
