"""The strategy that docs/strategies.md writes passes the suite, put under it as that page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import test_strategies
from tests.contracts.bench import Bench, bench_of

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
TESTS = [test for name, test in vars(test_strategies).items() if name.startswith("test_") and "bench" in test.__annotations__]


def _written() -> dict[str, Any]:
    """What the page's section defines."""
    section = PAGE.read_text().split("## Writing a strategy")[1]
    defined: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, defined)
    return defined


@pytest.mark.parametrize("test", TESTS)
def test_the_documented_strategy_passes_the_suite(test: Any, tmp_path: Path) -> None:
    (case,) = _written()["MIDDLES"]
    with bench_of(case, tmp_path) as bench:
        assert isinstance(bench, Bench)
        test(bench)
