"""What a job's asset asks of Spark, wherever it runs. The job's code cannot tell which of them it got."""

from collections.abc import Mapping
from typing import Protocol

import dagster as dg

from spark_jobs.request import Request, Result

Context = dg.OpExecutionContext | dg.AssetExecutionContext


class SparkRuntime(Protocol):
    """Computes requests: `SparkResource` in the run or by a session elsewhere, `SparkSubmit` as an application of its own."""

    def compute(self, context: Context, request: Request, settings: Mapping[str, str] | None = None) -> Result:
        """Write the attempt and say what came of its audits.

        `settings` are Spark's own, for this request alone. Raises dg.Failure with the first cause when Spark fails; what the
        job's function itself raises comes as it is where it runs in this process.
        """
        ...

    @property
    def started(self) -> bool:
        """Whether Spark was needed so far."""
        ...
