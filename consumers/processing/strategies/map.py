"""`Map`: a payload becomes another."""

from typing import TypeVar

from consumers.processing.strategies.run_task import RunTask

T = TypeVar("T")
U = TypeVar("U")


class Map(RunTask[T, U]):
    """`RunTask` by the name for a function that has no effect but its value. Both do the same and guarantee the same."""
