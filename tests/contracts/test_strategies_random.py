"""Any sequence of calls that an engine may make ends with everything through, once, in order: for every strategy."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.bench import Bench, EndBench, bench_of, end_bench_of
from tests.contracts.strategies import Last, Middle, registered

Action = tuple[str, Any]


def _submits(values: tuple[str, ...], rejecting: bool) -> st.SearchStrategy[Action]:
    """A message: values, partitions, whether there are rows, and the indexes of records that were rejected before."""
    indexes = st.sets(st.integers(0, 3), max_size=2 if rejecting else 0)
    partitions = st.sampled_from([(0,), (1,), (0, 1)])
    message = st.tuples(
        st.lists(st.sampled_from(values), min_size=1, max_size=6), partitions, st.sampled_from([True] * 4 + [False]), indexes
    )
    return message.map(lambda made: ("submit", made))


def _calls() -> st.SearchStrategy[Action]:
    plain = st.sampled_from([("poll", None), ("poll", None), ("flush", None), ("discard", None)])
    return plain | st.tuples(st.just("advance"), st.sampled_from([0.5, 2.5, 30.0]))


def _hindrances() -> st.SearchStrategy[Action]:
    return st.tuples(st.sampled_from(["full", "slow"]), st.booleans())


def _act(bench: Bench | EndBench, action: Action) -> None:
    name, what = action
    if name == "submit":
        values, partitions, rows, rejected = what
        bench.driver.submit(*values, partitions=partitions, rows=rows, rejected=rejected)
    elif name == "advance":
        bench.room.advance(what)
    elif name in ("full", "slow"):
        assert isinstance(bench, Bench)
        setattr(bench.after, name, what)
    else:
        getattr(bench.driver, name)()


def random_runs(examples: int) -> settings:
    """The same ones every time."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize("case", registered("MIDDLES"), ids=str)
def test_whatever_the_engine_does_everything_passes_once_and_in_order(
    case: Middle, tmp_path_factory: pytest.TempPathFactory
) -> None:
    messages = _submits(("ok", "ok", "bad", "drop"), rejecting=True)

    @random_runs(case.examples)
    @given(st.lists(messages | messages | _calls() | _hindrances(), max_size=30))
    def holds(actions: list[Action]) -> None:
        with bench_of(case, tmp_path_factory.mktemp("room")) as bench:
            for action in actions:
                _act(bench, action)
            bench.after.full = bench.after.slow = False
            bench.settle()

    holds()


@pytest.mark.parametrize("case", registered("LASTS"), ids=str)
def test_whatever_the_engine_does_everything_is_committed_once(case: Last, tmp_path_factory: pytest.TempPathFactory) -> None:
    messages = _submits(("ok",), rejecting=case.takes_rejected)

    @random_runs(case.examples)
    @given(st.lists(messages | messages | _calls(), max_size=30))
    def holds(actions: list[Action]) -> None:
        with end_bench_of(case, tmp_path_factory.mktemp("room")) as bench:
            for action in actions:
                _act(bench, action)
            bench.settle()

    holds()
