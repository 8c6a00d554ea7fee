"""Dagster's storage as it is in operation, for tests to import instead of that in memory."""

from collections.abc import Iterator

import dagster as dg
import pytest


@pytest.fixture(name="instance")
def on_disk() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made
