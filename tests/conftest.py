"""What tests of several folders share: one real Kafka for the whole session."""

from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.kafka_fixture import kafka as running_kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a broker of our own. Every test makes its own topics; none stops the broker."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap_servers:
        yield bootstrap_servers


class ByFile(LoadFileScheduling):
    """With several workers, a file stays on one of them, and so does everything that looks at the one platform."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "platform" if file.startswith("tests/browser/") or file.endswith("/test_platform.py") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Used by every run with workers."""
    config.option.loadscopereorder = False  # the longest come first already
    return ByFile(config, log)
