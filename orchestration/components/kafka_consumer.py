"""The component that turns `defs/consumers/<name>/defs.yaml` into a consumer's assets, job, sensor and checks."""

from typing import Self

import dagster as dg
from pydantic import BaseModel

from consumers.config import Consumer
from orchestration.catalog import ConsumerAttributes, named
from orchestration.checks.definitions import check_job, staged_checks
from orchestration.components.consumer_assets import consumer_assets
from orchestration.components.consumer_job import ingestion_job
from orchestration.components.consumer_scaffold import KafkaConsumerScaffolder
from orchestration.operations.jobs import operation_jobs
from orchestration.sensors.keep import keep_sensor
from orchestration.settings import Settings


@dg.scaffold_with(KafkaConsumerScaffolder)
class KafkaConsumer(dg.Component):
    """Stages a Kafka topic as a Delta table, each record exactly once. The folder's name is the consumer's name."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """What the attributes are. Dagster validates them against it and names file and line."""
        return ConsumerAttributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """What `dg list components` and the docs show."""
        return dg.ComponentTypeSpec(
            description="Stages a Kafka topic as a Delta table, each record exactly once.",
            tags=["kafka", "delta"],
            produces=["asset", "asset_check", "job", "sensor"],
        )

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """The component of a YAML file. Raises pydantic's ValidationError for a name that cannot be a consumer's."""
        if not isinstance(attributes, ConsumerAttributes):
            raise dg.DagsterInvalidDefinitionError(f"{context.path}/defs.yaml: 'attributes' are missing: topic, schema, window")
        return cls(named(context.path.name, attributes, Settings.load()))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Everything but the topic's asset, which several consumers may share (see `orchestration.definitions`)."""
        consumer = self.consumer
        ingestion, checking = ingestion_job(consumer), check_job(consumer)
        return dg.Definitions(
            assets=consumer_assets(consumer),
            asset_checks=[staged_checks(consumer)],
            jobs=[ingestion, checking, *operation_jobs(consumer)],
            sensors=[keep_sensor(consumer, ingestion, checking)],
        )
