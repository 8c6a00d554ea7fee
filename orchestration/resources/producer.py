"""Producing to Kafka from assets and ops: what a block sends is acknowledged before the step ends well, and counted in the UI."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import Field

from consumers.brokers.deliveries import DeliveryReport
from consumers.brokers.partitioners import NamedPartitioner
from consumers.brokers.producer import KafkaProducer
from consumers.brokers.transactions import KafkaTransactionalProducer
from consumers.clock import SystemClock
from orchestration.resources.kafka import KafkaResource

Context = dg.AssetExecutionContext | dg.OpExecutionContext


class KafkaProducerResource(dg.ConfigurableResource[None]):
    """Producers for the cluster that `kafka` names; secrets are that resource's affair."""

    kafka: KafkaResource = Field(default_factory=KafkaResource, description="the cluster to produce to")
    partitioner: NamedPartitioner = Field(
        default="murmur2_random", description="which partition a key goes to; the default is that of Java's clients"
    )
    flush_seconds: float = Field(default=120.0, gt=0, description="how long what was sent may take to be acknowledged")
    transaction_seconds: float = Field(default=600.0, gt=0, le=900.0, description="how long a transaction may stay open")

    @contextmanager
    def sending(self, context: Context) -> Iterator[KafkaProducer]:
        """A producer for a block. When the block ends, so have its deliveries, and their number is in the step's metadata.

        Raises `UndeliveredError`, which fails the step, when a record was not delivered. A step that runs again sends again.
        """
        clock = SystemClock()
        began = clock.monotonic()
        with KafkaProducer(self.kafka.connection(), partitioner=self.partitioner, client_id=_client_id(context)) as producer:
            yield producer
            report = producer.close(self.flush_seconds)
        _tell(context, report, clock.monotonic() - began)

    @contextmanager
    def in_transaction(self, context: Context, transactional_id: str) -> Iterator[KafkaTransactionalProducer]:
        """The same in one transaction, open already: readers of committed records see all of the block's, or none.

        `transactional_id` names the work, not the run: a later run ends what an earlier one left open, and fences it.
        """
        clock = SystemClock()
        began = clock.monotonic()
        with KafkaTransactionalProducer(
            self.kafka.connection(), transactional_id, timeout_seconds=self.transaction_seconds, partitioner=self.partitioner
        ) as producer:
            producer.begin()
            yield producer
            producer.commit_transaction(self.flush_seconds)
            report = producer.close(self.flush_seconds)
        _tell(context, report, clock.monotonic() - began)


def _client_id(context: Context) -> str:
    return f"weir-{context.op_execution_context.run_id[:8]}"


def _tell(context: Context, report: DeliveryReport, seconds: float) -> None:
    """Log the numbers, and put them into the metadata of the step's output."""
    context.log.info("%d records delivered to Kafka in %.1f s", report.delivered, seconds)
    metadata = {"records_delivered": dg.MetadataValue.int(report.delivered), "seconds": dg.MetadataValue.float(round(seconds, 3))}
    if isinstance(context, dg.AssetExecutionContext):
        context.add_asset_metadata(metadata)
    else:
        context.add_output_metadata(metadata)
