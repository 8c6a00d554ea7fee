"""One Spark session for all tests here; it starts in seconds and is the shipped one."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from orchestration.resources.spark import SparkResource


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a run gets."""
    yield SparkResource().spark_session
