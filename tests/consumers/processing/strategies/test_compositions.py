"""Strategies compose by types: the type checker takes chains that fit and refuses those that do not."""

from pathlib import Path

import pytest
from mypy import api

REPOSITORY = Path(__file__).parents[4]


def test_chains_that_fit_pass_the_type_check_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # Under --strict an ignored error that is none is an error itself.
    monkeypatch.chdir(REPOSITORY)
    file = Path(__file__).with_name("compositions.py")
    said, _, status = api.run(["--strict", "--explicit-package-bases", str(file)])
    assert status == 0, said
