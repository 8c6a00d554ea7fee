"""The tables that the platform keeps in a SQL database, beside the user's own. Knows no strategy and no broker."""

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from consumers.errors import ConfigError

METADATA = MetaData()

POSITIONS = Table(
    "weir_positions",
    METADATA,
    Column("consumer", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cut", BigInteger, nullable=False),
    Column("topic_id_hash", BigInteger, nullable=False),
    Column("member", String, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)
"""Where each partition stands: the next offset, how often it was taken over and by whom, and of which topic it is."""

DEAD_LETTERS = Table(
    "weir_dead_letters",
    METADATA,
    Column("consumer", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("topic_id_hash", BigInteger, primary_key=True, autoincrement=False),
    Column("cut", BigInteger, primary_key=True, autoincrement=False),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("timestamp_ms", BigInteger),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    Column("headers", Text),
    Column("reason", Text, nullable=False),
    Column("failed_at", DateTime(timezone=True), nullable=False),
)
"""Invalid records, whole. `headers` is a JSON list of [name, base64 of the value or null], or null where there are none."""

LOSSES = Table(
    "weir_losses",
    METADATA,
    Column("consumer", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("first_lost", BigInteger, nullable=False),
    Column("next_kept", BigInteger, nullable=False),
    Column("noticed_at", DateTime(timezone=True), nullable=False),
)
"""Offsets that were gone from the topic before they were read, where the definition says to go on; noticed at that takeover."""

SEEN_IDS = Table(
    "weir_seen_ids",
    METADATA,
    Column("consumer", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("message_id", String, primary_key=True),
    Column("offset", BigInteger, nullable=False),
    Column("seen_at", DateTime(timezone=True), nullable=False),
)
"""Ids of messages whose effect is in this database. `offset` is where each was seen first."""

Index("weir_seen_ids_by_offset", *(SEEN_IDS.c[name] for name in ("consumer", "topic", "partition", "offset")))

_ATTEMPTS = 5


def insert_into(table: Table, connection: Connection) -> postgresql.Insert | sqlite.Insert:
    """An insert that can say ON CONFLICT, which both databases spell alike."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def create_tables(engine: Engine, *tables: Table) -> None:
    """Create the tables that are missing, with their indexes; several members may do so at once.

    Raises `ConfigError` for a database other than PostgreSQL and SQLite, and SQLAlchemy's errors.
    """
    if engine.dialect.name not in {"postgresql", "sqlite"}:
        raise ConfigError(f"{engine.dialect.name} is not supported: positions are kept in PostgreSQL or SQLite")
    if "@" in (engine.url.host or ""):
        # Such a host begins with the end of the password, and every message about it would show that.
        raise ConfigError("the database's URL has two @: write one that belongs to the password as %40")
    for table in tables:
        _create(engine, table)


def _create(engine: Engine, table: Table) -> None:
    for attempt in range(_ATTEMPTS):
        if inspect(engine).has_table(table.name, table.schema):
            return
        try:
            with engine.begin() as connection:
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in sorted(table.indexes, key=lambda each: str(each.name)):
                    connection.execute(CreateIndex(index, if_not_exists=True))
        except DBAPIError:
            # Two that create a table at once collide in PostgreSQL's catalog, in spite of IF NOT EXISTS.
            if attempt == _ATTEMPTS - 1:
                raise
