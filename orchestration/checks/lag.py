"""The checks `time_lag` and `retention` of a staged table as Dagster's. The sensor `observe_topics` tells their outcomes by
itself; run by hand, they look at once.
"""

from collections.abc import Iterator

import dagster as dg

from consumers.clock import SystemClock
from consumers.config import Consumer
from orchestration.checks import time_lag
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors import retention
from orchestration.sensors.facts import admin, topics_of
from orchestration.sensors.topics import look, of_consumer
from orchestration.sensors.waiting import look as judge
from orchestration.sensors.waiting import recall


def lag_checks(consumer: Consumer) -> dg.AssetChecksDefinition:
    """The two checks of a consumer. Run by hand they fail with BrokerError where Kafka does not answer."""

    @dg.multi_asset_check(name=f"lag_of_{consumer.name}", specs=[time_lag.spec(consumer), retention.spec(consumer)])
    def checks(context: dg.AssetCheckExecutionContext, kafka: KafkaResource) -> Iterator[dg.AssetCheckResult]:
        client = admin(kafka.connection())
        seen = of_consumer(consumer, [look(client, topic, [consumer]) for topic in topics_of(client, consumer)])
        before = recall(context.instance, consumer.name)
        _, verdicts = judge(before, consumer, client, *seen, SystemClock().time())
        for verdict in verdicts:
            yield verdict.result(consumer.name)

    return checks
