"""Where things live, from the environment alone. No other module reads these variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
STAGED, DEAD_LETTERS = "staged", "dead_letters"
"""The folders of the consumers' tables, among the tables of jobs: no job's output can have such a name."""
_KAFKA = {
    "KAFKA_SECURITY_PROTOCOL": "security.protocol",
    "KAFKA_SASL_MECHANISM": "sasl.mechanism",
    "KAFKA_SASL_USERNAME": "sasl.username",
    "KAFKA_SASL_PASSWORD": "sasl.password",
    "KAFKA_SSL_CA_LOCATION": "ssl.ca.location",
}


@dataclass(frozen=True)
class Settings:
    """Folders and addresses of this installation.

    `home` holds state (WEIR_HOME, default `.weir` in the project), `tables` the Delta tables (WEIR_TABLES), `cache` what can be
    downloaded again (WEIR_CACHE), `bootstrap_servers` the Kafka cluster to use instead of the embedded one
    (KAFKA_BOOTSTRAP_SERVERS), `kafka` librdkafka's options to connect with (KAFKA_SECURITY_PROTOCOL and the like; never shown).
    `dagster_home` is where Dagster keeps its state (DAGSTER_HOME, else that of `weir up`); None before there is one.
    """

    home: Path
    tables: Path
    cache: Path
    bootstrap_servers: str | None
    project: Path = PROJECT
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    dagster_home: Path | None = None

    @staticmethod
    def load() -> "Settings":
        """Read the environment as it is now."""
        env = os.environ
        home = Path(env.get("WEIR_HOME") or PROJECT / ".weir").resolve()
        dagster_home = Path(env.get("DAGSTER_HOME") or home / "dagster")
        default_cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weir"
        return Settings(
            home=home,
            tables=Path(env.get("WEIR_TABLES") or home / "tables").resolve(),
            cache=Path(env.get("WEIR_CACHE") or default_cache).resolve(),
            bootstrap_servers=env.get("KAFKA_BOOTSTRAP_SERVERS") or None,
            kafka={option: value for name, option in _KAFKA.items() if (value := env.get(name))},
            dagster_home=dagster_home if (dagster_home / "dagster.yaml").exists() else None,
        )

    def staged(self, consumer: str) -> Path:
        """The staged table of a consumer."""
        return self.tables / STAGED / consumer

    def dead_letters(self, consumer: str) -> Path:
        """The dead-letter table of a consumer."""
        return self.tables / DEAD_LETTERS / consumer
