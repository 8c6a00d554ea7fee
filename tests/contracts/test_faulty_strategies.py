"""The conformance suite finds what is wrong: every planted fault fails a test of it, and what has none passes all."""

from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.contracts import faulty_strategies as faulty
from tests.contracts import strategies, test_strategies, test_strategies_random
from tests.contracts.bench import bench_of, end_bench_of
from tests.contracts.faulty_strategies import Honest, HonestEnd, last, middle

FAULTY = [pytest.param(kind, id=kind.__name__) for kind in Honest.__subclasses__()]
FAULTY_ENDS = [pytest.param(kind, id=kind.__name__) for kind in HonestEnd.__subclasses__()]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for, and what fails is not made smaller."""
    quick = settings(deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    monkeypatch.setattr(strategies, "PATIENCE", 0.02)
    monkeypatch.setattr(test_strategies_random, "random_runs", lambda examples: quick)


def _found(kind: type[Honest] | type[HonestEnd], path: Path) -> list[str]:
    """The tests of the suite that fail for a strategy."""
    wanted = "bench" if issubclass(kind, Honest) else "end"
    tests = [test for name, test in vars(test_strategies).items() if name.startswith("test_") and wanted in test.__annotations__]
    assert len(tests) > 5
    failed = []
    for number, test in enumerate(tests):
        here = path / str(number)
        here.mkdir()
        try:
            with bench_of(middle(kind), here) if issubclass(kind, Honest) else end_bench_of(last(kind), here) as bench:
                test(bench)
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # whatever a broken strategy leads to is a finding
            failed.append(test.__name__)
    return failed


@pytest.mark.parametrize("kind", [Honest, HonestEnd])
def test_a_strategy_without_a_fault_passes(kind: type[Honest] | type[HonestEnd], tmp_path: Path) -> None:
    assert not _found(kind, tmp_path)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", FAULTY)
def test_a_planted_fault_is_found(kind: type[Honest], tmp_path: Path) -> None:
    assert _found(kind, tmp_path)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", FAULTY_ENDS)
def test_a_planted_fault_of_a_last_step_is_found(kind: type[HonestEnd], tmp_path: Path) -> None:
    assert _found(kind, tmp_path)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "kind",
    [
        faulty.LosesWhatWasRefused,
        faulty.TakesAndRefuses,
        faulty.NewestFirst,
        faulty.DropsARow,
        faulty.PositionsBeforeRows,
        faulty.RemembersAfterDiscard,
    ],
)
def test_random_calls_find_a_planted_fault(kind: type[Honest], tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(AssertionError):
        test_strategies_random.test_whatever_the_engine_does_everything_passes_once_and_in_order(middle(kind), tmp_path_factory)
