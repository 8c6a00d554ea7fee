"""The project of `benchmarks.scale`: one consumer of hourly windows, loaded by a webserver or measured from beside it."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from consumers.clock import SystemClock
from consumers.config import Consumer, ConsumerConfig
from orchestration.components.consumer_assets import topic_assets
from orchestration.components.kafka_consumer import KafkaConsumer
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.topics import topics_sensor
from orchestration.settings import Settings

NAME = "readings"


def hours(count: int) -> list[str]:
    """The last `count` hours, oldest first."""
    now = datetime.fromtimestamp(SystemClock().time(), UTC).replace(minute=0, second=0, microsecond=0)
    return [(now - timedelta(hours=back)).strftime("%Y-%m-%d-%H") for back in range(count - 1, -1, -1)]


def consumer(first: str) -> Consumer:
    """The consumer, whose windows begin on the day of the window `first`."""
    config = ConsumerConfig.model_validate(
        {"topic": NAME, "schema": {"id": "long"}, "window": {"every": "hour", "first": first[:10]}}
    )
    settings = Settings.load()
    return Consumer(name=NAME, config=config, staged=settings.staged(NAME), dead_letters=settings.dead_letters(NAME))


@dg.definitions
def defs() -> dg.Definitions:
    """What the webserver loads. The windows are those of the table."""
    known = consumer(min(path.name.partition("=")[2] for path in Settings.load().staged(NAME).glob("_window=*")))
    shared = dg.Definitions(assets=topic_assets([known]), sensors=[topics_sensor([known])], resources={"kafka": KafkaResource()})
    return dg.Definitions.merge(shared, KafkaConsumer([known]).build_defs(dg.ComponentTree.for_test().load_context))
