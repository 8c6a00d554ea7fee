"""What tests of several folders share: one real Kafka for the whole session."""

from collections.abc import Iterator

import pytest

from tests.kafka_fixture import kafka as running_kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a broker of our own. Every test makes its own topics; none stops the broker."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap_servers:
        yield bootstrap_servers


@pytest.hookimpl(tryfirst=True)  # before the workers' own hook reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers: a file stays on one of them, and so does everything that looks at the one platform."""
    for item in items:
        group = "platform" if "platform" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
