"""The platform that the browser looks at: the one that the integration tests use, when they run in the same session."""

import pytest

from tests.integration.platform import Platform, shared


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """A running platform with filled topics."""
    return shared(request, tmp_path_factory)
