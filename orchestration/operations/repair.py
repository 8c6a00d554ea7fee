"""The job `repair_<name>`: compares positions, group offsets and Dagster's events, and mends what is safe to mend."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from consumers.brokers.protocol import BrokerAdmin
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.errors import WeirError
from orchestration.catalog import CONSUMER_TAG
from orchestration.repair import Difference, Outcome, Repairer
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.facts import admin

_COLUMNS = ("kind", "where", "difference", "mended", "said")


class RepairConfig(dg.Config):
    """What an operator may choose."""

    dry_run: bool = Field(default=False, description="only show what differs")


def repair_job(consumer: Consumer) -> dg.JobDefinition:
    """The job, with its op."""
    name = f"repair_{consumer.name}"

    @dg.op(name=f"compare_{consumer.name}", out=dg.Out(dg.Nothing))
    def repair(context: dg.OpExecutionContext, config: RepairConfig, kafka: KafkaResource) -> None:
        repairer = Repairer(context.instance, consumer, asked(kafka), SystemClock())
        found = repairer.look()
        outcomes = [_left_alone(each) for each in found] if config.dry_run else repairer.mend(found)
        mended = sum(each.mended for each in outcomes)
        context.add_output_metadata({"differences": _table(outcomes), "found": len(outcomes), "mended": mended})
        for each in outcomes:
            say = context.log.info if each.mended else context.log.warning
            say(f"{each.difference.where}: {each.difference.explanation} {each.said}")

    @dg.job(
        name=name,
        description=(
            f"Compares the positions of {consumer.name} with the offsets of {consumer.group} and with Dagster's events, explains "
            "every difference, and mends what is safe. With `dry_run: true` it only shows them."
        ),
        executor_def=dg.in_process_executor,
        tags={CONSUMER_TAG: consumer.name},
        run_tags={CONSUMER_TAG: consumer.name, "dagster/max_retries": "0"},
    )
    def job() -> None:
        repair()

    return job


def asked(kafka: KafkaResource) -> BrokerAdmin | WeirError:
    """Whom to ask about Kafka, or why nobody can be asked."""
    try:
        return admin(kafka.connection())
    except WeirError as error:
        return error


def _left_alone(difference: Difference) -> Outcome:
    return Outcome(difference, False, f"{'Would be mended' if difference.safe else 'For you to do'}: {difference.action}")


def _table(outcomes: Sequence[Outcome]) -> dg.MetadataValue:
    records = [
        dg.TableRecord(
            dict(
                zip(
                    _COLUMNS,
                    (o.difference.kind, o.difference.where, o.difference.explanation, o.mended, o.said),
                    strict=True,
                )
            )
        )
        for o in outcomes
    ]
    types = {"mended": "bool"}
    schema = dg.TableSchema(columns=[dg.TableColumn(name, types.get(name, "string")) for name in _COLUMNS])
    return dg.MetadataValue.table(records=records, schema=schema)
