"""The benchmark's own judgement: what it takes for a right table, what for a ratio that falls short, what for a disturbance."""

import numpy as np
import pytest

from benchmarks.contest import Figures, Topic
from benchmarks.contestants import Contestant, Target
from benchmarks.environments import OURS
from benchmarks.machine import Noise
from benchmarks.report import ratios
from benchmarks.topic import Rows

_IDS, _AMOUNTS = np.arange(6), np.array([5, -3, 0, 7, 7, 1])
_RIGHT = Rows.of(_IDS, _AMOUNTS)


def test_rows_are_the_same_in_any_order() -> None:
    order = np.array([3, 0, 5, 1, 4, 2])
    assert Rows.of(_IDS[order], _AMOUNTS[order]) == _RIGHT


@pytest.mark.parametrize(
    ("ids", "amounts"),
    [
        pytest.param(_IDS[:-1], _AMOUNTS[:-1], id="a row missing"),
        pytest.param(np.append(_IDS, 2), np.append(_AMOUNTS, 0), id="a row twice whose amount is nothing"),
        pytest.param(_IDS, _AMOUNTS[[1, 0, 2, 3, 4, 5]], id="amounts of two rows exchanged"),
    ],
)
def test_rows_differ_when_one_is_wrong(
    ids: "np.ndarray[int, np.dtype[np.int64]]", amounts: "np.ndarray[int, np.dtype[np.int64]]"
) -> None:
    assert Rows.of(ids, amounts) != _RIGHT


def _figures(rate: float) -> Figures:
    return Figures(rate, 1.0, 100.0, "", Noise(0.0, 0.0))


def _short(ours: list[float], theirs: list[float], least: float) -> list[str]:
    topic = Topic("t", "plain", 1000, 180.0, _RIGHT)
    entries = {name: (Contestant(name, "", ""), OURS, topic) for name in ("weir", "other")}
    found = {"weir": [_figures(rate) for rate in ours], "other": [_figures(rate) for rate in theirs]}
    return ratios(entries, found, [Target("weir", "other", least)])


def test_a_ratio_under_its_target_is_named() -> None:
    assert _short([2.0, 4.0, 2.0], [1.0, 1.0, 1.0], 2.5) == ["weir is 2.00 times as fast as other, not 2.5 times"]


def test_ratios_are_those_of_the_same_round() -> None:
    # Both are twice as fast in the second round, as on a machine that was quieter then.
    assert _short([30.0, 60.0], [10.0, 20.0], 3.0) == []


def test_others_at_work_disturb_and_so_does_a_hypervisor() -> None:
    assert Noise(0.3, 0.0).disturbs
    assert Noise(0.0, 0.1).disturbs
    assert not Noise(0.02, 0.01).disturbs
