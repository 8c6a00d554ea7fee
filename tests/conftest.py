"""What tests of several folders share: one real Kafka and one real PostgreSQL for the whole session."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL
from xdist.scheduler import LoadFileScheduling

from tests.kafka_fixture import kafka as running_kafka
from tests.postgres_fixture import database
from tests.postgres_fixture import postgres as running_postgres


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a broker of our own. Every test makes its own topics; none stops the broker."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[URL]:
    """A PostgreSQL of our own. Every test makes its own database."""
    with running_postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[URL]:
    """A fresh SQL database that several connections and processes can share."""
    if request.param == "sqlite":
        yield URL.create("sqlite", database=str(tmp_path / "data.db"))
    else:
        with database(request.getfixturevalue("postgres")) as url:
            yield url


class ByFile(LoadFileScheduling):
    """With several workers, a file stays on one of them, and so does everything that looks at the one platform."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "platform" if file.startswith("tests/browser/") or file.endswith("/test_platform.py") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Used by every run with workers."""
    config.option.loadscopereorder = False  # the longest come first already
    return ByFile(config, log)
