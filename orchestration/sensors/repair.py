"""The sensor `repair`: every few minutes it looks whether positions, group offsets and Dagster's events agree, and mends them.

It is cheap while nothing is wrong: of Dagster's events it looks at those that came since its last tick, and only where one was
reported by hand, or some are gone, is everything compared.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from consumers.brokers.protocol import BrokerAdmin
from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import WeirError, within
from orchestration import mirror
from orchestration.completeness import EMPTY
from orchestration.mirror_events import DATA_VERSION, staged_key
from orchestration.operations.repair import asked
from orchestration.repair import Difference, Repairer
from orchestration.resources.kafka import KafkaResource

INTERVAL_SECONDS = 300
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of an asset's events: the newest one's id in Dagster's storage (-1: none), when it was wiped (0: never)."""

    event: int = -1
    wiped: float = 0.0


def repair_sensor(consumers: Iterable[Consumer]) -> dg.SensorDefinition:
    """One sensor for all consumers."""
    known = sorted(consumers, key=lambda consumer: consumer.name)

    @dg.sensor(
        name="repair",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Compares positions, group offsets and events of every consumer, and mends what is safe to mend",
    )
    def repair(context: dg.SensorEvaluationContext, kafka: KafkaResource) -> dg.SensorResult:
        return tick(context.instance, known, asked(kafka), context.cursor, SystemClock())

    return repair


def tick(
    instance: dg.DagsterInstance,
    consumers: Sequence[Consumer],
    admin: BrokerAdmin | WeirError,
    cursor: str | None,
    clock: Clock,
) -> dg.SensorResult:
    """One look at every consumer; the reason says what was found and done."""
    before, said = _parse(cursor), list[str]()
    after = dict(before)
    for consumer in consumers:
        seen, why = suspicion(instance, consumer, before.get(consumer.name))
        try:
            repairer = Repairer(instance, consumer, admin, clock)
            found = repairer.look(events=bool(why))
            outcomes = repairer.mend(found, mirror.SENSOR_SECONDS)
            # Commits whose events nobody has written yet: with `keep_<name>` off, nobody else will.
            late = 0 if why else repairer.catch_up(mirror.SENSOR_SECONDS)
        except WeirError as error:
            # The other consumers are not to wait for this one, and neither is what was seen of it taken for mended.
            said.append(f"{consumer.name}: {error}")
            continue
        if all(each.mended for each in outcomes if each.difference.kind == "events"):
            after[consumer.name] = seen
        if unreachable := next((each for each in found if each.kind == "kafka"), None):
            # Once is enough: every other consumer would wait for the same answer.
            admin = WeirError(unreachable.explanation)
        said += [f"{consumer.name}: {late:,} late events were written"] if late else []
        said += [f"{consumer.name}: {_short(o.difference)} {o.said}" for o in outcomes if o.difference.kind != "kafka"]
    if isinstance(admin, WeirError):
        said.append(f"Kafka cannot be reached, so group offsets were not compared: {within(admin)}")
    reason = "; ".join(said) or f"{len(consumers)} consumers: positions, group offsets and events agree"
    return dg.SensorResult(skip_reason=dg.SkipReason(reason), cursor=_text(after))


def suspicion(instance: dg.DagsterInstance, consumer: Consumer, before: Seen | None) -> tuple[Seen, str]:
    """What is there now of a staged table's events, and why all of them should be compared; empty where nothing speaks for it."""
    key = staged_key(consumer.name)
    now = _now(instance, key)
    if before is None:
        return now, "the asset was wiped" if now.wiped else ""
    if now.wiped != before.wiped or now.event < before.event:
        return now, "the asset was wiped"
    foreign = _foreign(instance, key, before.event)
    return now, f"{foreign} was reported by hand" if foreign else ""


def _now(instance: dg.DagsterInstance, key: dg.AssetKey) -> Seen:
    records = instance.get_asset_records([key])
    if not records:
        return Seen()
    entry = records[0].asset_entry
    newest = entry.last_materialization_storage_id
    wiped = entry.asset_details.last_wipe_timestamp if entry.asset_details else None
    return Seen(-1 if newest is None else newest, wiped or 0.0)


def _foreign(instance: dg.DagsterInstance, key: dg.AssetKey, after: int) -> str:
    """The window of an event after a storage id that was not written for a Delta commit; empty where there is none."""
    cursor: str | None = None
    wanted = dg.AssetRecordsFilter(asset_key=key, after_storage_id=after)
    while True:
        page = instance.fetch_materializations(wanted, limit=_PAGE, cursor=cursor)
        for record in page.records:
            event = record.asset_materialization
            if event and "commit_id" not in event.metadata and (event.tags or {}).get(DATA_VERSION) != EMPTY:
                return event.partition or "the table"
        if not page.has_more:
            return ""
        cursor = page.cursor


def _short(difference: Difference) -> str:
    return f"{difference.where}: {difference.explanation}"


def _parse(cursor: str | None) -> dict[str, Seen]:
    try:
        raw: Mapping[str, Sequence[float]] = json.loads(cursor or "{}")
        return {name: Seen(int(event), float(wiped)) for name, (event, wiped) in raw.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _text(seen: Mapping[str, Seen]) -> str:
    return json.dumps({name: [each.event, each.wiped] for name, each in sorted(seen.items())})
