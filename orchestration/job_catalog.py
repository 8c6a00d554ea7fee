"""The project's Spark jobs, read from their YAML files without loading Dagster's definitions."""

import yaml

from orchestration.components.spark_config import SparkJobConfig
from orchestration.components.spark_job import job_of
from orchestration.compute.job import Job
from orchestration.settings import Settings


def configs(settings: Settings) -> list[SparkJobConfig]:
    """What the YAML files say, by folder."""
    paths = sorted((settings.project / "orchestration" / "defs" / "jobs").glob("*/defs.yaml"))
    return [SparkJobConfig.model_validate(yaml.safe_load(path.read_text())["attributes"]) for path in paths]


def jobs(settings: Settings) -> dict[str, Job]:
    """The jobs by output table."""
    return {config.output: job_of(config, settings) for config in configs(settings)}
