"""Where things live, from the environment alone. No other module reads these variables."""

import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Settings:
    """Folders and addresses of this installation.

    `home` holds state (WEIR_HOME, default `.weir` in the project), `tables` the Delta tables (WEIR_TABLES), `cache` what can be
    downloaded again (WEIR_CACHE), `bootstrap_servers` the Kafka cluster to use instead of the embedded one
    (KAFKA_BOOTSTRAP_SERVERS).
    """

    home: Path
    tables: Path
    cache: Path
    bootstrap_servers: str | None
    project: Path = PROJECT

    @staticmethod
    def load() -> "Settings":
        """Read the environment as it is now."""
        env = os.environ
        home = Path(env.get("WEIR_HOME") or PROJECT / ".weir").resolve()
        default_cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weir"
        return Settings(
            home=home,
            tables=Path(env.get("WEIR_TABLES") or home / "tables").resolve(),
            cache=Path(env.get("WEIR_CACHE") or default_cache).resolve(),
            bootstrap_servers=env.get("KAFKA_BOOTSTRAP_SERVERS") or None,
        )

    def staged(self, consumer: str) -> Path:
        """The staged table of a consumer."""
        return self.tables / "staged" / consumer

    def dead_letters(self, consumer: str) -> Path:
        """The dead-letter table of a consumer."""
        return self.tables / "dead_letters" / consumer
