"""The topic as an asset downstream of its table, the job that sends, and the sensor that starts it."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from consumers.clock import SystemClock
from orchestration.feed.config import Feed
from orchestration.feed.publish import publish_table
from orchestration.feed.sender import Sent
from orchestration.feed.sensor import evaluate, last_sent
from orchestration.resources.kafka import KafkaResource


def feed_definitions(
    output: Path, feed: Feed, *, group: str = "jobs", owners: Sequence[str] = (), autostart: bool = True
) -> dg.Definitions:
    """What publishes the table at `output`, whose asset is named as its folder. `autostart`: the sensor begins switched on."""
    table = output.name
    key = dg.AssetKey(["topic", feed.topic])
    spec = dg.AssetSpec(
        key=key,
        deps=[dg.AssetKey([table])],
        description=f"The rows of {table} in Kafka: a record for every row that changed, a tombstone for every key that is gone.",
        group_name=group,
        owners=list(owners),
        kinds={"kafka"},
        metadata={"dagster/uri": f"kafka://{feed.topic}", "keys": ", ".join(feed.keys)},
    )

    @dg.multi_asset(name=f"publish_{table}", specs=[spec], pool=f"publish_{table}")
    def publish(context: dg.AssetExecutionContext, kafka: KafkaResource) -> dg.MaterializeResult[None]:
        clock = SystemClock()
        began = clock.monotonic()
        told, _at = last_sent(context.instance, key)
        sent = publish_table(output, feed, kafka.connection(), told)
        context.log.info(_told(sent))
        return dg.MaterializeResult(asset_key=key, metadata=_metadata(sent, clock.monotonic() - began))

    job = dg.define_asset_job(f"publish_{table}_job", [publish], executor_def=dg.in_process_executor)

    @dg.sensor(
        name=f"publish_{table}_sensor",
        job=job,
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING if autostart else dg.DefaultSensorStatus.STOPPED,
        description=f"Sends to the topic {feed.topic} what is new in {table}.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return evaluate(context.instance, output, feed, key, job.name, SystemClock())

    return dg.Definitions(assets=[publish], jobs=[job], sensors=[sensor])


def _told(sent: Sent) -> str:
    whole = f"; all rows were sent: {sent.whole}" if sent.whole else ""
    since = "" if sent.since is None else f" after version {sent.since}"
    return f"sent version {sent.version}{since}: {sent.rows} rows, {sent.tombstones} tombstones{whole}"


def _metadata(sent: Sent, seconds: float) -> dict[str, dg.MetadataValue]:
    return {
        "version": dg.MetadataValue.int(sent.version),
        "rows_sent": dg.MetadataValue.int(sent.rows),
        "tombstones": dg.MetadataValue.int(sent.tombstones),
        "seconds": dg.MetadataValue.float(round(seconds, 3)),
        "offsets": dg.MetadataValue.json({str(p): [r.start, r.end] for p, r in sent.offsets.items()}),
        "group": dg.MetadataValue.text(sent.group),
        "topic_id": dg.MetadataValue.text(sent.topic_id),
        **({} if sent.since is None else {"after_version": dg.MetadataValue.int(sent.since)}),
        **({"whole": dg.MetadataValue.text(sent.whole)} if sent.whole else {}),
    }
