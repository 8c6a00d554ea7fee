"""The assets of a consumer: its staged table by window, its dead-letter table, and the topic that both come from."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from consumers.config import Column, Consumer
from consumers.staging.completeness import end_of, first_window, last_window
from consumers.staging.windows import FORMATS
from orchestration.catalog import ingestion_job_name
from orchestration.components.consumer_backfill import rebuildable
from orchestration.known_topics import known_topics
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
_KEPT_BYTES = {"_value": ("binary", "the record's exact bytes")}
_STAGED_COLUMNS = {
    "_tombstone": ("boolean", "the record has a key and no value"),
    "_window": ("string", "the window of event time: the table's and Dagster's partition"),
}
_DEAD_LETTER_COLUMNS = {
    "_value": ("binary", "the record's exact bytes"),
    "_reason": ("string", "why it could not become a row"),
    "_window": ("string", "the window of event time, where known"),
    "_rejected_at": ("timestamp", "when"),
    "_commit_id": ("string", "null; or the rewrite, not committed yet, that the row waits for"),
    "_attempts": ("integer", "how often it was replayed in vain"),
    "_resolved_at": ("timestamp", "when the record became a row; null while it is not one"),
    "_resolved_by": ("string", "the schema that made it a row"),
}


def partitions(consumer: Consumer) -> dg.TimeWindowPartitionsDefinition:
    """A consumer's windows as Dagster partitions, the current, unfinished one included."""
    window = consumer.config.window
    every, start, last, fmt = window.every, first_window(window), last_window(window), FORMATS[window.every]
    end = None if last is None else datetime.fromtimestamp((end_of(last, every) or 0) / 1000, UTC)
    if every == "hour":
        return dg.HourlyPartitionsDefinition(start_date=start, end_date=end, fmt=fmt, end_offset=1)
    return dg.DailyPartitionsDefinition(start_date=start, end_date=end, fmt=fmt, end_offset=1)


def freshness(consumer: Consumer) -> dg.FreshnessPolicy | None:
    """Every window has an event when it is complete, also a quiet one: one is due each window, later by the lag that is allowed.

    None for data that ends, which needs no news.
    """
    window, lag = consumer.config.window, consumer.config.lag
    if window.last is not None:
        return None
    due = (3600.0 if window.every == "hour" else 86_400.0) + window.grace_seconds + window.idle_seconds
    warn, fail = due + lag.warn_seconds, due + max(lag.fail_seconds, lag.warn_seconds + 60)
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=fail), warn_window=timedelta(seconds=warn))


def consumer_assets(consumer: Consumer) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """The staged table, whose windows can be built again, and the dead letters."""
    config = consumer.config
    topics = [topic_key(topic) for topic in known_topics(consumer)]
    staged = dg.AssetSpec(
        key=staged_key(consumer.name),
        description=_described(consumer),
        deps=topics,
        group_name=consumer.name,
        owners=config.owners,
        kinds={"kafka", "delta"},
        partitions_def=partitions(consumer),
        freshness_policy=freshness(consumer),
        metadata={
            "dagster/column_schema": _staged_schema(consumer),
            "dagster/uri": consumer.staged.as_uri(),
            "dagster/table_name": f"staged.{consumer.name}",
            "path": dg.MetadataValue.path(consumer.staged),
        },
    )
    dead_letters = dg.AssetSpec(
        key=dead_letters_key(consumer.name),
        description=f"The records of {config.reads} that could not become rows, byte for byte, with the reason.",
        deps=topics,
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
    return [rebuildable(consumer, staged), dead_letters]


def topic_assets(consumers: Iterable[Consumer]) -> list[dg.AssetSpec]:
    """The topics, one asset each, however many consumers read it."""
    readers: dict[str, list[Consumer]] = {}
    for consumer in consumers:
        for topic in known_topics(consumer):
            readers.setdefault(topic, []).append(consumer)
    return [
        dg.AssetSpec(
            key=topic_key(topic),
            description=f"The Kafka topic {topic}, read by {', '.join(each.name for each in known)}. Observed when it moves.",
            group_name=_home(topic, known),
            owners=sorted({owner for each in known for owner in each.config.owners}),
            kinds={"kafka", "topic"},
            metadata={"dagster/uri": f"kafka://{topic}"},
        )
        for topic, known in sorted(readers.items())
    ]


def _home(topic: str, readers: Sequence[Consumer]) -> str:
    """The group that a topic is shown in: its namesake's, whoever else comes to read it."""
    return next((each.name for each in readers if each.name == topic), readers[0].name)


def _described(consumer: Consumer) -> str:
    """What the table is and who writes it, which Dagster does not show of a table that it does not materialize itself."""
    about = consumer.config.description or f"The records of {consumer.config.reads} in Kafka, each exactly once."
    return f"{about}\n\nWritten by runs of `{ingestion_job_name(consumer.name)}`, which the sensor `keep_{consumer.name}` starts."


def _staged_schema(consumer: Consumer) -> dg.TableSchema:
    declared = [
        dg.TableColumn(name, column.type, _origin(name, column), constraints=dg.TableColumnConstraints(nullable=column.nullable))
        for name, column in consumer.config.columns.items()
    ]
    kept = _KEPT_BYTES if consumer.config.keep_raw else {}
    return dg.TableSchema(columns=[*declared, *_columns(_OWN_COLUMNS | kept | _STAGED_COLUMNS)])


def _origin(name: str, column: Column) -> str:
    """Where a declared column is read from."""
    if column.key:
        return "the record's key"
    if column.header is not None:
        return f"the record's last header '{column.header}'"
    return f"the field {column.path or name} of the record's value"


def _columns(columns: dict[str, tuple[str, str]]) -> list[dg.TableColumn]:
    return [dg.TableColumn(name, type_, description) for name, (type_, description) in columns.items()]
