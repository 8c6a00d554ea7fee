"""The component that turns `defs/consumers/<name>/defs.yaml` into a consumer's assets, job, sensor and checks."""

from collections.abc import Sequence
from typing import Self

import dagster as dg
from pydantic import BaseModel

from consumers.config import Consumer
from consumers.processing.decoding import decoder_for
from orchestration.catalog import ConsumerAttributes, consumers_of
from orchestration.checks.definitions import check_job, staged_checks
from orchestration.checks.lag import lag_checks
from orchestration.components.consumer_assets import consumer_assets
from orchestration.components.consumer_job import ingestion_job
from orchestration.components.consumer_scaffold import KafkaConsumerScaffolder
from orchestration.maintenance.assets import maintenance_assets, tables_of
from orchestration.operations.jobs import operation_jobs
from orchestration.sensors.keep import keep_sensor
from orchestration.settings import Settings


@dg.scaffold_with(KafkaConsumerScaffolder)
class KafkaConsumer(dg.Component):
    """Stages a Kafka topic as a Delta table, each record exactly once. The folder's name is the consumer's name.

    With a split there are several consumers, one for each table, named after the folder and the table.
    """

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self.consumers = consumers

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
        consumers = consumers_of(context.path.name, attributes, Settings.load())
        for consumer in consumers:
            decoder_for(consumer.config)  # a transform that cannot be imported is found now
        return cls(consumers)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Everything but the topic's asset, which several consumers may share (see `orchestration.definitions`)."""
        return dg.Definitions.merge(*map(_definitions, self.consumers))


def _definitions(consumer: Consumer) -> dg.Definitions:
    ingestion, checking = ingestion_job(consumer), check_job(consumer)
    return dg.Definitions(
        assets=[*consumer_assets(consumer), *maintenance_assets(tables_of(consumer), consumer.config.owners)],
        asset_checks=[staged_checks(consumer), lag_checks(consumer)],
        jobs=[ingestion, checking, *operation_jobs(consumer)],
        sensors=[keep_sensor(consumer, ingestion, checking)],
    )
