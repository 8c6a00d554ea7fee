"""What tests of several modules share: Dagster's storage, and a consumer whose tables are yet to be made."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from consumers.config import Consumer
from tests.orchestration.staged_tables import consumer_in


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Storage in memory. It knows no pools and no sensors; `on_disk` does."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def consumer(tmp_path: Path) -> Consumer:
    """`orders`, with two members."""
    return consumer_in(tmp_path, members=2)
