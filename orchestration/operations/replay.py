"""The job `replay_<name>`: an operator has dead letters tried again by today's definition."""

import re
from collections.abc import Mapping

import dagster as dg
from pydantic import Field, field_validator

from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.processing.replay import Author, ReplayResult, Selection, replay
from orchestration import mirror
from orchestration.catalog import CONSUMER_TAG
from orchestration.dead_letters import outcomes, summary_metadata
from orchestration.mirror_events import dead_letters_event, dead_letters_key

_ID = re.compile(r"(\d+):(\d+)")
_WHO = ("dagster/user", "user")


class ReplayConfig(dg.Config):
    """Which dead letters: all that match every condition given. Without one, all that are not resolved."""

    reason: str = Field(default="", description="a part of the reason, such as 'required field'")
    windows: list[str] = Field(default=[], description="windows of the records' own time, such as 2013-01-31")
    ids: list[str] = Field(default=[], description="partition:offset, such as 0:123")
    dry_run: bool = Field(default=False, description="only say what would be fixed")
    why: str = Field(default="", description="for those who read the table's log later")
    by: str = Field(default="", description="who you are, where Dagster does not know")

    @field_validator("ids")
    @classmethod
    def _named(cls, ids: list[str]) -> list[str]:
        if wrong := [each for each in ids if not _ID.fullmatch(each)]:
            raise ValueError(f"ids are partition:offset, such as 0:123, not {', '.join(wrong[:5])}. Nothing was changed.")
        return ids

    def selection(self) -> Selection:
        """The same for the engine."""
        ids = (each.split(":") for each in self.ids)
        return Selection(
            reason=self.reason or None,
            windows=frozenset(self.windows),
            ids=frozenset((int(partition), int(offset)) for partition, offset in ids),
        )


def replay_job(consumer: Consumer) -> dg.JobDefinition:
    """The job, with its op."""
    name = f"replay_{consumer.name}"

    @dg.op(name=f"replay_dead_letters_of_{consumer.name}", out=dg.Out(dg.Nothing))
    def replay_dead_letters(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
        author = Author(_who(context.run.tags, config), config.why or "replay", context.run_id)

        def tell(so_far: ReplayResult) -> None:
            context.log.info(f"{so_far.selected:,} dead letters so far: {_told(so_far, config.dry_run)}")

        result = replay(consumer, config.selection(), None, SystemClock(), dry_run=config.dry_run, author=author, progress=tell)
        context.log.info(f"Done. {_told(result, config.dry_run)}")
        context.add_output_metadata(_numbers(result, config.dry_run))
        if not config.dry_run:
            _show(context, consumer, result)

    @dg.job(
        name=name,
        description=(
            f"Tries dead letters of {consumer.name} again with today's definition. What is valid by now goes to the staged "
            "table, once, and is marked resolved; the rest stays. Safe beside ingestion, to terminate, and to launch again."
        ),
        executor_def=dg.in_process_executor,
        tags={CONSUMER_TAG: consumer.name},
        run_tags={CONSUMER_TAG: consumer.name, "dagster/max_retries": "0"},
    )
    def job() -> None:
        replay_dead_letters()

    return job


def _who(tags: Mapping[str, str], config: ReplayConfig) -> str:
    return next((tags[tag] for tag in _WHO if tags.get(tag)), "") or config.by or "launchpad"


def _told(result: ReplayResult, dry_run: bool) -> str:
    became = "would become rows" if dry_run else "became rows"
    parts = [f"{result.fixed:,} {became}", f"{result.still_invalid:,} are still invalid"]
    if result.already_resolved:
        parts.append(f"{result.already_resolved:,} were rows already")
    if result.not_final:
        parts.append(f"{result.not_final:,} were left alone: not committed yet, or of a topic that was replaced since")
    return ", ".join(parts)


def _numbers(result: ReplayResult, dry_run: bool) -> dict[str, dg.MetadataValue]:
    return {
        "fixed": dg.MetadataValue.int(result.fixed),
        "still_invalid": dg.MetadataValue.int(result.still_invalid),
        "already_resolved": dg.MetadataValue.int(result.already_resolved),
        "left_alone": dg.MetadataValue.int(result.not_final),
        "by_reason": outcomes(result.fixed_by_reason, result.invalid_by_reason),
        "commits": dg.MetadataValue.int(len(result.commits)),
        "dry_run": dg.MetadataValue.bool(dry_run),
    }


def _show(context: dg.OpExecutionContext, consumer: Consumer, result: ReplayResult) -> None:
    """What is left, on the dead letters' asset; and the windows that have more rows now, on the staged table's."""
    remaining = {**summary_metadata(consumer), "replayed_by_reason": outcomes(result.fixed_by_reason, result.invalid_by_reason)}
    if result.commits:
        context.log_event(dead_letters_event(consumer.name, result.commits, remaining))
        mirror.catch_up(context.instance, consumer, context.log_event, SystemClock())
    else:
        # No row has come or gone, so there is no commit that a materialization could stand for.
        context.log_event(
            dg.AssetObservation(
                asset_key=dead_letters_key(consumer.name),
                description="Dead letters were tried again; none became a row.",
                metadata=remaining,
            )
        )
