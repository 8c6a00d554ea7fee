"""Finds, checks and calls job functions: plain functions whose arguments are named as the job's inputs and parameters.

`windows` (mode window: those to compute) and `current` (mode merge: the output as it is, None when it starts over) are given to
functions that name them.
"""

import importlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any

from pyspark.sql import DataFrame

from spark_jobs.request import Mode, Scalar

JobFunction = Callable[..., DataFrame]
"""Inputs by name, parameters by keyword → rows. Nothing may depend on the order of rows, or on the clock."""

_OFFERED: Mapping[str, Mode] = {"windows": "window", "current": "merge"}
_SCALARS: Mapping[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}


def load_function(dotted: str) -> JobFunction:
    """Import `package.module.function`. Raises ValueError that says what is missing."""
    module_name, _, name = dotted.rpartition(".")
    if not module_name:
        raise ValueError(f"'{dotted}' is no dotted path to a function, such as spark_jobs.airport_delays.airport_delays")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"cannot import '{module_name}' of '{dotted}': {error}") from error
    function: JobFunction | None = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"module '{module_name}' has no function '{name}'")
    return function


def check_signature(function: JobFunction, inputs: Collection[str], parameters: Mapping[str, Scalar], mode: Mode) -> None:
    """Raise ValueError that lists all that does not fit between a function and the names that the job gives it."""
    if problems := list(_problems(function, inputs, parameters, mode)):
        raise ValueError(f"{_name(function)}{inspect.signature(function)} does not fit: {'; '.join(problems)}")


def call(
    function: JobFunction,
    frames: Mapping[str, DataFrame],
    parameters: Mapping[str, Scalar],
    windows: Sequence[str],
    current: DataFrame | None,
) -> DataFrame:
    """What the function returns for these inputs. Raises TypeError when that is no frame."""
    offered = {"windows": windows, "current": current}
    named = inspect.signature(function).parameters
    result = function(**frames, **parameters, **{name: value for name, value in offered.items() if name in named})
    # Not isinstance: a frame of Spark Connect is of another class.
    if not hasattr(result, "columns"):
        raise TypeError(f"{_name(function)} returned {type(result).__name__}; a job function returns a DataFrame")
    return result


def _problems(function: JobFunction, inputs: Collection[str], parameters: Mapping[str, Scalar], mode: Mode) -> Iterator[str]:
    arguments = inspect.signature(function).parameters
    given = {*inputs, *parameters}
    for name in sorted(set(inputs) & {*parameters, *_OFFERED}):
        yield f"'{name}' cannot be the name of an input, it means something else"
    for name in sorted(given - set(arguments)):
        yield f"it has no argument for the {'input' if name in inputs else 'parameter'} '{name}'"
    for name, argument in arguments.items():
        yield from _misfit(argument, inputs, parameters, mode)
        if name not in given and name not in _OFFERED and argument.default is Parameter.empty and _is_plain(argument):
            yield f"the job has no {'parameter' if argument.kind is Parameter.KEYWORD_ONLY else 'input'} '{name}'"


def _misfit(argument: Parameter, inputs: Collection[str], parameters: Mapping[str, Scalar], mode: Mode) -> Iterator[str]:
    name = argument.name
    if not _is_plain(argument):
        yield f"'{argument}' is not one named argument"
    elif name in parameters and name not in inputs and argument.kind is not Parameter.KEYWORD_ONLY:
        yield f"the parameter '{name}' must be keyword-only (after a `*`)"
    elif name in inputs and argument.kind is Parameter.KEYWORD_ONLY:
        yield f"the input '{name}' must stand before the `*`"
    elif name in _OFFERED and mode != _OFFERED[name]:
        yield f"'{name}' is given in mode {_OFFERED[name]} only, the job's is {mode}"
    elif name in parameters and not _has_type(parameters[name], argument.annotation):
        yield f"the parameter '{name}' is {parameters[name]!r}, not of type {argument.annotation.__name__}"


def _is_plain(argument: Parameter) -> bool:
    return argument.kind in {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}


def _has_type(value: Scalar, annotation: Any) -> bool:
    if annotation not in _SCALARS:
        return True
    return isinstance(value, _SCALARS[annotation]) and isinstance(value, bool) == (annotation is bool)


def _name(function: JobFunction) -> str:
    return getattr(function, "__name__", repr(function))
