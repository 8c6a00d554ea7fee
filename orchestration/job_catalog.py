"""The project's Spark jobs, read from their YAML files without loading Dagster's definitions."""

from pathlib import Path

import yaml

from orchestration.compute.config import ConsumerInput, SparkJobConfig, TableInput
from orchestration.compute.job import Input, Job
from orchestration.settings import Settings


def configs(settings: Settings) -> list[SparkJobConfig]:
    """What the YAML files say, by folder."""
    paths = sorted((settings.project / "orchestration" / "defs" / "jobs").glob("*/defs.yaml"))
    return [SparkJobConfig.model_validate(yaml.safe_load(path.read_text())["attributes"]) for path in paths]


def jobs(settings: Settings) -> dict[str, Job]:
    """The jobs by output table."""
    return {config.output: job_of(config, settings) for config in configs(settings)}


def job_of(config: SparkJobConfig, settings: Settings) -> Job:
    """The job that a definition describes, with its tables' places."""

    def place(source: ConsumerInput | TableInput) -> Path:
        return settings.staged(source.consumer) if isinstance(source, ConsumerInput) else settings.tables / source.table

    return Job(
        name=config.output,
        function=config.function,
        inputs={name: Input(place(source), source.reach(config.windows)) for name, source in config.inputs.items()},
        output=settings.tables / config.output,
        mode=config.mode,
        declared_version=config.code_version,
        parameters=config.parameters,
        keys=config.keys,
        buckets=config.buckets,
        audits=tuple(audit.audit(name) for name, audit in config.audits.items()),
        follows=config.follows or "",
    )
