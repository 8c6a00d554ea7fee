"""Every test of the contract runs on both brokers."""

from collections.abc import Iterator

import pytest

from tests.contracts.brokers.backends import Backend, Kafka, Memory


@pytest.fixture(scope="session", params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A cluster for the session; every test makes its own topics and groups."""
    found: Backend = Memory() if request.param == "memory" else Kafka(request.getfixturevalue("kafka"))
    yield found
    found.close()
