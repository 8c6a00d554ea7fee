"""One Spark session for all tests here; it starts in seconds and is the shipped one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orchestration.resources.spark import SparkResource
from tests.spark_jobs.tables import Lab


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a run gets."""
    yield SparkResource().spark_session


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    """A folder of its own."""
    return Lab(spark, tmp_path)
