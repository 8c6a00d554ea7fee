"""Producing from assets: delivered before the step ends well, counted in its metadata."""

import dagster as dg
import pytest

from orchestration.resources.kafka import KafkaResource
from orchestration.resources.producer import KafkaProducerResource
from tests.committed import values
from tests.faults.ledger import new_topic

NOBODY = KafkaResource(bootstrap_servers="127.0.0.1:1")


@dg.asset(config_schema={"topic": str, "boom": bool})
def prices(context: dg.AssetExecutionContext, producer: KafkaProducerResource) -> dg.MaterializeResult[None]:
    with producer.sending(context) as sender:
        for number in range(3):
            sender.send(context.op_execution_context.op_config["topic"], b"%d" % number)
    return dg.MaterializeResult()


@dg.asset(config_schema={"topic": str, "boom": bool})
def totals(context: dg.AssetExecutionContext, producer: KafkaProducerResource) -> dg.MaterializeResult[None]:
    with producer.in_transaction(context, "totals") as sender:
        sender.send(context.op_execution_context.op_config["topic"], b"total", partition=0)
        sender.flush(30)
        if context.op_execution_context.op_config["boom"]:
            raise ZeroDivisionError
    return dg.MaterializeResult()


def materialize(
    asset: dg.AssetsDefinition, topic: str, producer: KafkaProducerResource, boom: bool = False
) -> dg.ExecuteInProcessResult:
    """A run of one asset."""
    config = {"ops": {asset.op.name: {"config": {"topic": topic, "boom": boom}}}}
    return dg.materialize([asset], resources={"producer": producer}, run_config=config, raise_on_error=False)


@pytest.mark.integration
def test_an_asset_that_produces_tells_how_many_records_were_delivered(kafka: str) -> None:
    topic = new_topic(kafka, 1)
    result = materialize(prices, topic, KafkaProducerResource(kafka=KafkaResource(bootstrap_servers=kafka)))
    assert result.success
    (event,) = result.asset_materializations_for_node("prices")
    assert event.metadata["records_delivered"].value == 3
    assert values(kafka, topic) == [b"0", b"1", b"2"]


@pytest.mark.integration
def test_what_a_failed_asset_sent_in_a_transaction_is_never_seen(kafka: str) -> None:
    topic, producer = new_topic(kafka, 1), KafkaProducerResource(kafka=KafkaResource(bootstrap_servers=kafka))
    assert not materialize(totals, topic, producer, boom=True).success
    assert materialize(totals, topic, producer).success
    assert values(kafka, topic) == [b"total"]


def test_an_asset_fails_when_a_record_was_not_delivered() -> None:
    result = materialize(prices, "t", KafkaProducerResource(kafka=NOBODY, flush_seconds=0.1))
    assert not result.success
    assert not result.asset_materializations_for_node("prices")
    (failure,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    assert "3 of 3 records were not delivered" in str(failure.event_specific_data)
