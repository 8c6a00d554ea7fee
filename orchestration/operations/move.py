"""The job `move_<name>`: an operator sets a consumer's positions, after having seen what that would skip or read again."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import dagster as dg
from pydantic import Field

from consumers.clock import Clock, SystemClock
from consumers.config import Consumer
from consumers.errors import ConfigError
from consumers.processing.move import Moved, Mover, Plan, Step, Target
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG
from orchestration.mirror_events import moved_event
from orchestration.operations.topics import one_topic
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.facts import admin

_WHO = ("dagster/user", "user")
"""Tags of a run that name the person who launched it, where the deployment sets one."""
_PLAN = dg.TableSchema(
    columns=[
        dg.TableColumn("partition", "string"),
        dg.TableColumn("from", "int", "the next offset now"),
        dg.TableColumn("to", "int", "the next offset then"),
        dg.TableColumn("skipped", "int", "offsets that will not be read"),
        dg.TableColumn("read_again", "int", "offsets whose rows are removed, and read again"),
    ]
)
_WINDOWS = dg.TableSchema(columns=[dg.TableColumn("window", "string"), dg.TableColumn("rows", "int")])
_SHOWN_WINDOWS = 50


class MoveConfig(dg.Config):
    """Where to, and why. Without `dry_run: false` nothing is changed."""

    to: str = Field(description="earliest, latest, a time such as 2026-01-31T00:00:00Z, or offsets")
    why: str = Field(min_length=1, description="for those who find the gap, or the second reading, later")
    offsets: dict[str, int] = Field(default={}, description="with `to: offsets`: partition → the next offset to read")
    partitions: list[int] = Field(default=[], description="only these partitions; default: all")
    topic: str = Field(default="", description="which topic, where the consumer reads several")
    dry_run: bool = Field(default=True, description="show what would be skipped or read again, and change nothing")
    confirm: str = Field(default="", description="to really do it (`dry_run: false`): the consumer's name")
    by: str = Field(default="", description="who you are, where Dagster does not know")


def move_job(consumer: Consumer) -> dg.JobDefinition:
    """The job, with its op."""
    name = f"move_{consumer.name}"

    @dg.op(name=f"set_positions_of_{consumer.name}", out=dg.Out(dg.Nothing))
    def move(context: dg.OpExecutionContext, config: MoveConfig, kafka: KafkaResource) -> None:
        mover = Mover(one_topic(consumer, config.topic), admin(kafka.connection()), SystemClock())
        if config.dry_run:
            _preview(context, consumer, mover, config)
        else:
            _move(context, consumer, mover, config, SystemClock())

    @dg.job(
        name=name,
        description=(
            f"Sets the positions of {consumer.name} in {consumer.config.reads}: to earliest, latest, a time, or offsets. "
            "Shows what that would skip or read again; does it only with `dry_run: false` and the consumer's name in `confirm`."
        ),
        executor_def=dg.in_process_executor,
        tags={CONSUMER_TAG: consumer.name},
        run_tags={CONSUMER_TAG: consumer.name, "dagster/max_retries": "0"},
    )
    def job() -> None:
        move()

    return job


def target_of(config: MoveConfig) -> Target:
    """What the configuration asks for. Raises `ConfigError` where it contradicts itself."""
    if (config.to == "offsets") != bool(config.offsets):
        raise ConfigError("`to: offsets` needs `offsets`, such as {'0': 1500}, and no other `to` takes them. Nothing was moved.")
    if config.to == "offsets":
        try:
            return {int(partition): offset for partition, offset in config.offsets.items()}
        except ValueError:
            raise ConfigError(f"`offsets`: partitions are numbers, not {', '.join(config.offsets)}. Nothing was moved.") from None
    if config.to == "earliest":
        return "earliest"
    if config.to == "latest":
        return "latest"
    return _moment(config.to)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"`to` is earliest, latest, offsets, or a time such as 2026-01-31T00:00:00Z, not '{text}'. Nothing was moved."
        ) from None
    if moment.tzinfo is None:
        raise ConfigError(f"`to: {text}` needs an offset, such as Z. Nothing was moved.")
    return moment


def who(tags: Mapping[str, str], config: MoveConfig) -> str:
    """Who launched the run, as far as anybody says."""
    return next((tags[tag] for tag in _WHO if tags.get(tag)), "") or config.by or "launchpad"


def _preview(context: dg.OpExecutionContext, consumer: Consumer, mover: Mover, config: MoveConfig) -> None:
    plan, gone = mover.preview(target_of(config), config.partitions)
    context.add_output_metadata({**_numbers(plan), "rows_to_remove": sum(gone.values()), "windows": _windows(gone)})
    if plan.refusals:
        raise ConfigError(f"this would be refused: {'. '.join(plan.refusals)}. Nothing was moved.")
    context.log.info(
        f"Nothing was changed. {_told(plan)}; {sum(gone.values()):,} rows would be removed and read again. To do it, launch it "
        f"again with `dry_run: false` and `confirm: {consumer.name}`."
    )


def _move(context: dg.OpExecutionContext, consumer: Consumer, mover: Mover, config: MoveConfig, clock: Clock) -> None:
    if config.confirm != consumer.name:
        raise ConfigError(f"`confirm` must be the consumer's name, {consumer.name}. Nothing was moved.")
    by = who(context.run.tags, config)
    moved = mover.move(target_of(config), config.partitions, by=by, why=config.why, member=context.run_id)
    context.add_output_metadata({**_numbers(moved.plan), **_done(moved), "by": by, "why": config.why})
    if moved.commit is None:
        context.log.info("Nothing was changed: every partition stands there already.")
        return
    context.log.info(f"{_told(moved.plan)}; {moved.commit.removed:,} rows were removed and are read again. {_group(moved)}")
    context.log_event(moved_event(consumer.name, [moved.commit]))
    mirror.catch_up(context.instance, consumer, context.log_event, clock)


def _told(plan: Plan) -> str:
    skipped, again = sum(step.skipped for step in plan.steps), sum(step.again for step in plan.steps)
    return f"{len(plan.steps)} partitions, {skipped:,} offsets skipped, {again:,} read again"


def _group(moved: Moved) -> str:
    if moved.group_told:
        return "The group's offsets were set, too."
    return "The group has members: they notice within half a minute, and its offsets follow."


def _numbers(plan: Plan) -> dict[str, dg.MetadataValue]:
    return {
        "plan": dg.MetadataValue.table(records=[_record(step) for step in plan.steps], schema=_PLAN),
        "skipped_offsets": dg.MetadataValue.int(sum(step.skipped for step in plan.steps)),
        "offsets_to_read_again": dg.MetadataValue.int(sum(step.again for step in plan.steps)),
    }


def _record(step: Step) -> dg.TableRecord:
    return dg.TableRecord(
        {"partition": str(step.tp), "from": step.before, "to": step.to, "skipped": step.skipped, "read_again": step.again}
    )


def _done(moved: Moved) -> dict[str, int | bool | dg.MetadataValue]:
    if moved.commit is None:
        return {"moved": False}
    return {
        "moved": True,
        "removed_rows": moved.commit.removed,
        "delta_version": moved.commit.version,
        "windows_to_read_again": len(moved.commit.windows),
        "group_offsets_set": moved.group_told,
    }


def _windows(gone: Counter[str]) -> dg.MetadataValue:
    records = [dg.TableRecord({"window": window, "rows": rows}) for window, rows in sorted(gone.items())[:_SHOWN_WINDOWS]]
    return dg.MetadataValue.table(records=records, schema=_WINDOWS)
