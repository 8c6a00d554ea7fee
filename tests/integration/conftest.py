"""The platform for the tests that look at all of it."""

import pytest

from tests.integration.platform import Platform, shared


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """The session's one platform. Tests add to its topics and leave its sensors as they were."""
    return shared(request, tmp_path_factory)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the platform first, since they take longest; the browser's after there is something to see."""
    items.sort(
        key=lambda item: ("platform" not in getattr(item, "fixturenames", ()), item.get_closest_marker("browser") is not None)
    )
