"""A process that ends at one of its steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Killed(BaseException):
    """The process ended here: nothing of ours catches this."""


@contextmanager
def killed(owner: type, step: str, moment: str = "after") -> Iterator[None]:
    """What is done inside ends `before` or `after` the first call of a method, which there must be."""
    original = getattr(owner, step)

    def last(*arguments: Any, **named: Any) -> Any:
        if moment == "after":
            original(*arguments, **named)
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, step, last)
        yield
