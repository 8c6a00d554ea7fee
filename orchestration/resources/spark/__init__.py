"""Where jobs compute: one `compute(context, request)` on every runtime, chosen by a resource and not by the job's code."""

from orchestration.resources.spark.runtime import SparkRuntime
from orchestration.resources.spark.session import SparkResource
from orchestration.resources.spark.submit import SparkSubmit

__all__ = ["SparkResource", "SparkRuntime", "SparkSubmit"]
