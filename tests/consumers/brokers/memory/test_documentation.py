"""The examples of `docs/testing.md` run as they stand."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.brokers.memory import Faults

PAGE = Path(__file__).parents[4] / "docs" / "testing.md"


def documented() -> dict[str, Callable[[], None]]:
    """The tests that the page's code blocks define, in one module."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    module: dict[str, object] = {"__name__": "documented"}
    exec(compile("\n".join(blocks), str(PAGE), "exec"), module)
    return {name: found for name, found in module.items() if name.startswith("test_") and callable(found)}


TESTS = documented()


def test_the_page_has_examples() -> None:
    assert len(TESTS) == 6


@pytest.mark.parametrize("name", TESTS)
def test_a_documented_example_holds(name: str) -> None:
    TESTS[name]()


def test_every_fault_that_is_documented_exists() -> None:
    assert set(re.findall(r"cluster\.faults\.(\w+)\(", PAGE.read_text())) <= set(dir(Faults))
