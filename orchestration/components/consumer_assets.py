"""The assets of a consumer: its staged table by window, its dead-letter table, and the topic that both come from."""

from collections.abc import Iterable

import dagster as dg

from consumers.config import Consumer
from orchestration.catalog import ingestion_job_name
from orchestration.mirror import first_partition, partition_format
from orchestration.mirror_events import dead_letters_key, staged_key, topic_key

_OWN_COLUMNS = {
    "_topic": ("string", "the topic"),
    "_topic_id": ("string", "the topic's id, which a recreated topic does not share"),
    "_partition": ("integer", "the topic's partition"),
    "_offset": ("long", "the record's offset"),
    "_timestamp": ("timestamp", "the record's timestamp"),
    "_key": ("binary", "the record's key"),
    "_headers": ("array<struct<key:string,value:binary>>", "the record's headers"),
}
_STAGED_COLUMNS = {
    "_tombstone": ("boolean", "the record has a key and no value"),
    "_window": ("string", "the window of event time: the table's and Dagster's partition"),
}
_DEAD_LETTER_COLUMNS = {
    "_value": ("binary", "the record's exact bytes"),
    "_reason": ("string", "why it could not become a row"),
    "_window": ("string", "the window of event time, where known"),
    "_rejected_at": ("timestamp", "when"),
}


def partitions(consumer: Consumer) -> dg.TimeWindowPartitionsDefinition:
    """A consumer's windows as Dagster partitions, the current, unfinished one included."""
    every = consumer.config.window.every
    start, fmt = first_partition(consumer), partition_format(every)
    if every == "hour":
        return dg.HourlyPartitionsDefinition(start_date=start, fmt=fmt, end_offset=1)
    return dg.DailyPartitionsDefinition(start_date=start, fmt=fmt, end_offset=1)


def consumer_assets(consumer: Consumer) -> list[dg.AssetSpec]:
    """The staged table and the dead letters."""
    config = consumer.config
    topic = topic_key(config.topic)
    staged = dg.AssetSpec(
        key=staged_key(consumer.name),
        description=_described(consumer),
        deps=[topic],
        group_name=consumer.name,
        owners=config.owners,
        kinds={"kafka", "delta"},
        partitions_def=partitions(consumer),
        metadata={
            "dagster/column_schema": _staged_schema(consumer),
            "dagster/uri": consumer.staged.as_uri(),
            "dagster/table_name": f"staged.{consumer.name}",
            "path": dg.MetadataValue.path(consumer.staged),
        },
    )
    dead_letters = dg.AssetSpec(
        key=dead_letters_key(consumer.name),
        description=f"The records of {config.topic} that could not become rows, byte for byte, with the reason.",
        deps=[topic],
        group_name=consumer.name,
        owners=config.owners,
        kinds={"delta", "dead_letters"},  # the graph shows the key's last part only, which all three have in common
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=_columns(_OWN_COLUMNS | _DEAD_LETTER_COLUMNS)),
            "dagster/uri": consumer.dead_letters.as_uri(),
            "dagster/table_name": f"dead_letters.{consumer.name}",
            "path": dg.MetadataValue.path(consumer.dead_letters),
        },
    )
    return [staged, dead_letters]


def topic_assets(consumers: Iterable[Consumer]) -> list[dg.AssetSpec]:
    """The topics, one asset each, however many consumers read it."""
    readers: dict[str, list[str]] = {}
    for consumer in consumers:
        readers.setdefault(consumer.config.topic, []).append(consumer.name)
    return [
        dg.AssetSpec(
            key=topic_key(topic),
            description=f"The Kafka topic {topic}, read by {', '.join(names)}. Observed when its watermarks or positions move.",
            group_name=names[0],
            kinds={"kafka", "topic"},
        )
        for topic, names in sorted(readers.items())
    ]


def _described(consumer: Consumer) -> str:
    """What the table is and who writes it, which Dagster does not show of a table that it does not materialize itself."""
    about = consumer.config.description or f"The records of the Kafka topic {consumer.config.topic}, each exactly once."
    return f"{about}\n\nWritten by runs of `{ingestion_job_name(consumer.name)}`, which the sensor `keep_{consumer.name}` starts."


def _staged_schema(consumer: Consumer) -> dg.TableSchema:
    declared = [
        dg.TableColumn(name, column.type, constraints=dg.TableColumnConstraints(nullable=column.nullable))
        for name, column in consumer.config.columns.items()
    ]
    return dg.TableSchema(columns=[*declared, *_columns(_OWN_COLUMNS | _STAGED_COLUMNS)])


def _columns(columns: dict[str, tuple[str, str]]) -> list[dg.TableColumn]:
    return [dg.TableColumn(name, type_, description) for name, (type_, description) in columns.items()]
