"""The platform that the browser looks at: the one that the integration tests use, when they run in the same session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.browser import open_page
from tests.integration.platform import Platform, shared


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """A running platform with filled topics."""
    return shared(request, tmp_path_factory)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """An empty page of a fresh browser; how it looked in the end is in the test's folder."""
    with open_page() as opened:
        yield opened
        opened.screenshot(path=tmp_path / "page.png", full_page=True)
