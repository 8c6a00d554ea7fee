"""The Spark session that every job's asset asks for."""

import dagster as dg

from orchestration.resources.spark import SparkResource


@dg.definitions
def resources() -> dg.Definitions:
    """`spark`: a session in the run itself, with Spark's local defaults."""
    return dg.Definitions(resources={"spark": SparkResource()})
