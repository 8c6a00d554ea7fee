"""How everything here reaches Kafka unless told otherwise: by the environment, else the embedded cluster. Knows no Dagster."""

from collections.abc import Mapping

from consumers.brokers.options import KafkaOptions
from orchestration.local.cluster import bootstrap_servers
from orchestration.settings import Settings


def kafka_options(settings: Settings, servers: str | None = None, options: Mapping[str, str] | None = None) -> KafkaOptions:
    """The connection; `servers` and librdkafka's `options` win over the environment.

    Raises LocalError when no servers are named and the embedded cluster does not run.
    """
    return KafkaOptions(servers or bootstrap_servers(settings), {**settings.kafka, **(options or {})})
