"""`SparkJob`: one YAML names a function in `spark_jobs/`, its inputs, its output table and its windows."""

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel

from consumers.clock import SystemClock
from orchestration.components.spark_asset import Windows, evaluate_checks, materialize
from orchestration.components.spark_config import ConsumerInput, SparkJobConfig, TableInput
from orchestration.components.spark_plan import Job, load_function
from orchestration.components.spark_sensor import JOB_TAG, Trigger, evaluate
from orchestration.resources.spark import SparkResource
from orchestration.settings import Settings


def job_of(config: SparkJobConfig, settings: Settings) -> Job:
    """The job that a definition describes, with its tables' places."""
    paths = {
        name: settings.staged(source.consumer) if isinstance(source, ConsumerInput) else settings.tables / source.table
        for name, source in config.inputs.items()
    }
    return Job(
        config.output,
        config.function,
        paths,
        settings.tables / config.output,
        config.windows != "none",
        config.code_version,
    )


class SparkJob(dg.Component):
    """A PySpark function over staged tables, run for the windows that changed."""

    def __init__(self, config: SparkJobConfig) -> None:
        self.config = config

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """What the YAML's `attributes` are checked against, with file and line."""
        return SparkJobConfig

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """The component of checked attributes."""
        assert isinstance(attributes, SparkJobConfig)
        return cls(attributes)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The asset with its checks, the job that materializes it, and the sensor that starts the job."""
        settings = Settings.load()
        job, partitions = job_of(self.config, settings), self._partitions()
        asset = self._asset(job, partitions)
        asset_job = dg.define_asset_job(
            f"{self.config.output}_job",
            [asset],
            tags={JOB_TAG: job.name},
            executor_def=dg.in_process_executor,
        )
        sensor = self._sensor(job, partitions, asset_job)
        return dg.Definitions(assets=[asset], jobs=[asset_job], sensors=[sensor])

    def _partitions(self) -> dg.TimeWindowPartitionsDefinition | None:
        if self.config.windows == "none":
            return None
        # The window that is going on now takes part: its late and its next records are the same thing to a
        # job.
        last = self.config.last
        end = None if last is None else datetime.combine(date.fromisoformat(last), time(), UTC) + timedelta(days=1)
        if self.config.windows == "day":
            return dg.DailyPartitionsDefinition(self.config.first or "2000-01-01", end_date=end, end_offset=1)
        first_hour = f"{self.config.first or '2020-01-01'}-00"
        return dg.HourlyPartitionsDefinition(first_hour, end_date=end, fmt="%Y-%m-%d-%H", end_offset=1)

    def _asset(self, job: Job, partitions: dg.TimeWindowPartitionsDefinition | None) -> dg.AssetsDefinition:
        key, checks = dg.AssetKey([self.config.output]), self.config.checks
        run = _windowed_op if partitions else _whole_op
        return dg.asset(
            key=key,
            deps=[_dep(source, partitions is not None) for source in self.config.inputs.values()],
            partitions_def=partitions,
            backfill_policy=dg.BackfillPolicy.multi_run(self.config.max_windows_per_run) if partitions else None,
            check_specs=[dg.AssetCheckSpec(name, asset=key) for name in checks],
            output_required=False,
            group_name=self.config.group,
            kinds={"spark", "delta"},
            owners=self.config.owners,
            code_version=job.code_version(),
            description=self.config.description or load_function(self.config.function).__doc__,
            freshness_policy=self._freshness(),
            metadata=_about(job),
            pool=f"spark_{self.config.output}",
        )(run(job, key, checks))

    def _trigger(self) -> Trigger:
        config = self.config
        return Trigger(
            config.settle_seconds,
            config.max_wait_seconds,
            config.max_windows_per_run,
            complete_in=tuple(config.consumers) if config.wait_for == "complete" else (),
            every="hour" if config.windows == "hour" else "day",
        )

    def _freshness(self) -> dg.FreshnessPolicy | None:
        limits = self.config.freshness
        if limits is None:
            return None
        return dg.FreshnessPolicy.time_window(timedelta(seconds=limits.fail_seconds), timedelta(seconds=limits.warn_seconds))

    def _sensor(self, job: Job, partitions: dg.PartitionsDefinition | None, target: Any) -> dg.SensorDefinition:
        key = dg.AssetKey([self.config.output])
        trigger = self._trigger()
        status = dg.DefaultSensorStatus.RUNNING if self.config.autostart else dg.DefaultSensorStatus.STOPPED

        @dg.sensor(
            name=f"{self.config.output}_sensor",
            job=target,
            minimum_interval_seconds=5,
            default_status=status,
            description=f"Runs {self.config.output} for the windows that commits touched.",
        )
        def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
            return evaluate(context, job, key, partitions, trigger, SystemClock())

        return sensor


def _about(job: Job) -> dict[str, Any]:
    """Where the table is, and the function that makes it; the loader adds the YAML file."""
    function = load_function(job.function)
    lines = inspect.getsourcelines(function)[1]
    reference = dg.LocalFileCodeReference(file_path=inspect.getsourcefile(function) or "", line_number=lines, label=job.function)
    return {
        "dagster/uri": job.output.as_uri(),
        "dagster/table_name": job.output.name,
        "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference]),
        "table": dg.MetadataValue.path(str(job.output)),
        "function": job.function,
    }


def _dep(source: ConsumerInput | TableInput, windowed: bool) -> dg.AssetDep:
    key = dg.AssetKey(["staged", source.consumer] if isinstance(source, ConsumerInput) else [source.table])
    mapping = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True) if windowed else None
    return dg.AssetDep(key, partition_mapping=mapping)


def _windowed_op(job: Job, key: dg.AssetKey, checks: dict[str, str]) -> Callable[..., Any]:
    def compute(context: dg.AssetExecutionContext, config: Windows, spark: SparkResource) -> Iterator[Any]:
        plan = yield from materialize(context, job, config, spark, SystemClock())
        yield from evaluate_checks(job, plan, key, checks)

    return compute


def _whole_op(job: Job, key: dg.AssetKey, checks: dict[str, str]) -> Callable[..., Any]:
    def compute(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[Any]:
        plan = yield from materialize(context, job, Windows(), spark, SystemClock())
        yield from evaluate_checks(job, plan, key, checks)

    return compute
