"""Engines on the databases that these tests run on: a file of SQLite's, a real PostgreSQL, and SQLite in memory."""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine, StaticPool, create_engine


@pytest.fixture
def engine(sql_url: URL) -> Iterator[Engine]:
    """An engine on a fresh database."""
    made = create_engine(sql_url)
    yield made
    made.dispose()


@pytest.fixture
def memory() -> Iterator[Engine]:
    """SQLite in memory, on one connection that everybody shares."""
    made = create_engine("sqlite://", poolclass=StaticPool)
    yield made
    made.dispose()
