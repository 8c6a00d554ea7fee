"""What a job function may look like, and what is said of one that does not fit its job. No Spark is needed for that."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame

from spark_jobs.functions import call, check_signature, load_function
from spark_jobs.request import Mode, Scalar

FRAME: Any = type("Frame", (), {"columns": ["x"]})()


def delays(flights: DataFrame, weather: DataFrame, *, percentile: float = 0.9, unit: str) -> DataFrame:
    return flights


def windowed(flights: DataFrame, windows: Sequence[str]) -> DataFrame:
    return flights


def balances(flights: DataFrame, current: DataFrame | None) -> DataFrame:
    return flights


def greedy(flights: DataFrame, **rest: DataFrame) -> DataFrame:
    return flights


def loose(flights: DataFrame, percentile: float = 0.9) -> DataFrame:
    return flights


def backwards(*, flights: DataFrame) -> DataFrame:
    return flights


def test_a_function_that_names_its_inputs_and_parameters_fits() -> None:
    check_signature(delays, ["flights", "weather"], {"unit": "min", "percentile": 1}, "full")
    check_signature(windowed, ["flights"], {}, "window")
    check_signature(balances, ["flights"], {}, "merge")


@pytest.mark.parametrize(
    ("function", "inputs", "parameters", "mode", "said"),
    [
        (delays, ["flights"], {"unit": "min"}, "full", "the job has no input 'weather'"),
        (delays, ["flights", "weather"], {}, "full", "the job has no parameter 'unit'"),
        (windowed, ["flights", "planes"], {}, "window", "it has no argument for the input 'planes'"),
        (windowed, ["flights"], {"percentil": 1}, "window", "it has no argument for the parameter 'percentil'"),
        (windowed, ["flights"], {}, "full", "'windows' is given in mode window only, the job's is full"),
        (balances, ["flights"], {}, "incremental", "'current' is given in mode merge only, the job's is incremental"),
        (balances, ["flights", "current"], {}, "merge", "'current' cannot be the name of an input"),
        (greedy, ["flights"], {}, "full", "'\\*\\*rest: .*' is not one named argument"),
        (loose, ["flights"], {"percentile": 0.5}, "full", "the parameter 'percentile' must be keyword-only"),
        (backwards, ["flights"], {}, "full", "the input 'flights' must stand before the `\\*`"),
        (delays, ["flights", "weather"], {"unit": 3}, "full", "the parameter 'unit' is 3, not of type str"),
        (delays, ["flights", "weather"], {"unit": "", "percentile": True}, "full", "'percentile' is True, not of type float"),
    ],
)
def test_what_does_not_fit_is_said_by_name(
    function: Callable[..., DataFrame], inputs: list[str], parameters: dict[str, Scalar], mode: Mode, said: str
) -> None:
    with pytest.raises(ValueError, match=rf"{function.__name__}\(.*does not fit: .*{said}"):
        check_signature(function, inputs, parameters, mode)


def test_all_that_does_not_fit_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"no argument for the input 'planes'; .*no input 'weather'; .*no parameter 'unit'"):
        check_signature(delays, ["flights", "planes"], {}, "full")


def test_a_function_gets_windows_and_current_only_where_it_names_them() -> None:
    seen: dict[str, object] = {}

    def named(flights: DataFrame, windows: Sequence[str], current: DataFrame | None, *, factor: int) -> DataFrame:
        seen.update(windows=windows, current=current, factor=factor)
        return flights

    assert call(named, {"flights": FRAME}, {"factor": 2}, ["a"], None) is FRAME
    assert seen == {"windows": ["a"], "current": None, "factor": 2}
    assert call(loose, {"flights": FRAME}, {}, ["a"], None) is FRAME


def test_a_function_that_returns_no_frame_is_named() -> None:
    def forgetful(flights: DataFrame) -> Any:
        return None

    with pytest.raises(TypeError, match="forgetful returned NoneType; a job function returns a DataFrame"):
        call(forgetful, {"flights": FRAME}, {}, [], None)


@pytest.mark.parametrize(
    ("dotted", "said"),
    [
        ("airport_delays", "is no dotted path to a function"),
        ("spark_jobs.nowhere.f", "cannot import 'spark_jobs.nowhere'"),
        ("spark_jobs.airport_delays.nope", "has no function 'nope'"),
    ],
)
def test_a_function_that_is_not_there_is_said_to_be_missing(dotted: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_function(dotted)
