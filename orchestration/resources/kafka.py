"""How runs and sensors reach Kafka: the embedded cluster, or a real one by settings, with secrets from environment variables."""

import dagster as dg
from pydantic import Field

from consumers.brokers.options import KafkaOptions
from orchestration.connection import kafka_options
from orchestration.settings import Settings


class KafkaResource(dg.ConfigurableResource[None]):
    """A Kafka cluster. What is left out: KAFKA_BOOTSTRAP_SERVERS and the other variables, else this project's embedded cluster.

    Pass secrets as `dg.EnvVar`, which keeps them out of the UI. `options` are librdkafka's own and win over the named ones.
    """

    bootstrap_servers: str | None = Field(default=None, description="host:port, separated by commas")
    security_protocol: str | None = Field(default=None, description="plaintext, ssl, sasl_plaintext or sasl_ssl")
    sasl_mechanism: str | None = Field(default=None, description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER")
    sasl_username: str | None = None
    sasl_password: str | None = None
    ssl_ca_location: str | None = Field(default=None, description="the file with the certificates to trust")
    options: dict[str, str] = Field(default={}, description="any librdkafka options")

    def connection(self) -> KafkaOptions:
        """Where and how to connect. Raises what the embedded cluster raises when it is needed and does not run."""
        named = {
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": self.sasl_password,
            "ssl.ca.location": self.ssl_ca_location,
        }
        given = {name: value for name, value in named.items() if value is not None}
        return kafka_options(Settings.load(), self.bootstrap_servers, {**given, **self.options})
