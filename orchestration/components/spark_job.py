"""`SparkJob`: one YAML names a function in `spark_jobs/`, its inputs, its output table and its windows."""

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Self

import dagster as dg
from pydantic import BaseModel

from consumers.clock import SystemClock
from orchestration.components.spark_asset import Windows, Work, materialize
from orchestration.components.spark_sensor import JOB_TAG, Trigger, evaluate
from orchestration.compute.config import ConsumerInput, SparkJobConfig, TableInput
from orchestration.compute.job import Job
from orchestration.feed.asset import feed_definitions
from orchestration.job_catalog import job_of
from orchestration.maintenance.assets import maintenance_assets
from orchestration.maintenance.run import Table
from orchestration.resources.spark import SparkRuntime
from orchestration.settings import Settings
from spark_jobs.functions import load_function


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
        care = self.config.maintenance
        kept = [Table(job.name, "output", job.output, care)] if care.enabled else []
        looked_after = maintenance_assets(kept, self.config.owners)
        made = dg.Definitions(assets=[asset, *looked_after], jobs=[asset_job], sensors=[sensor])
        return dg.Definitions.merge(made, self._feed(job.output))

    def _feed(self, output: Path) -> dg.Definitions:
        config = self.config
        if config.publish is None:
            return dg.Definitions()
        return feed_definitions(output, config.publish, group=config.group, owners=config.owners, autostart=config.autostart)

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
        key = dg.AssetKey([self.config.output])
        work = Work(job, key, self.config.checks, self.config.resources)
        run = _windowed_op if partitions else _whole_op
        return dg.asset(
            key=key,
            deps=[_dep(source, self.config.windows) for source in self.config.inputs.values()],
            partitions_def=partitions,
            backfill_policy=dg.BackfillPolicy.multi_run(self.config.max_windows_per_run) if partitions else None,
            check_specs=[dg.AssetCheckSpec(name, asset=key) for name in (*self.config.audits, *self.config.checks)],
            output_required=False,
            group_name=self.config.group,
            kinds={"spark", "delta"},
            owners=self.config.owners,
            code_version=job.code_version(),
            description=self.config.description or load_function(self.config.function).__doc__,
            freshness_policy=self._freshness(),
            metadata=_about(job),
            pool=f"spark_{self.config.output}",
        )(run(work))

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
            description=f"Runs {self.config.output} for what commits changed.",
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


def _dep(source: ConsumerInput | TableInput, windows: str) -> dg.AssetDep:
    key = dg.AssetKey(["staged", source.consumer] if isinstance(source, ConsumerInput) else [source.table])
    mapping: dg.PartitionMapping | None = None
    if windows != "none" and source.windows != "none":
        mapping = dg.TimeWindowPartitionMapping(start_offset=-source.look_back, allow_nonexistent_upstream_partitions=True)
    if windows != "none" and source.up_to:
        mapping = dg.AllPartitionMapping()
    return dg.AssetDep(key, partition_mapping=mapping)


def _windowed_op(work: Work) -> Callable[..., Any]:
    def compute(context: dg.AssetExecutionContext, config: Windows, spark: dg.ResourceParam[SparkRuntime]) -> Iterator[Any]:
        yield from materialize(context, work, config, spark, SystemClock())

    return compute


def _whole_op(work: Work) -> Callable[..., Any]:
    def compute(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkRuntime]) -> Iterator[Any]:
        yield from materialize(context, work, Windows(), spark, SystemClock())

    return compute
