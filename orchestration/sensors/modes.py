"""When a consumer's members are to work: always, by a cron line until caught up, or from some lag on. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dagster._utils.schedules import get_latest_completed_cron_tick, get_next_cron_tick

from consumers.config import OnLag
from consumers.types import Positions
from orchestration.sensors.decision import Work

ALWAYS = Work(due=True)


@dataclass(frozen=True)
class Plan:
    """What a sensor keeps of a schedule: the last time that it took note of (seconds since the epoch), and how far each partition
    is to be read because of it (`topic/partition` → next offset).
    """

    seen: float = 0.0
    goal: Mapping[str, int] = field(default_factory=dict)


def scheduled(cron: str, plan: Plan, highs: Positions, positions: Positions, now: float) -> tuple[Plan, Work]:
    """Whether members are to work, and what to keep.

    When a time has come, the goal is what the topic holds now, and members work until the table is there, however many runs that
    takes. Times that were missed count as one. The first look of all only takes note: it waits for the next time. A position past
    the end belongs to a log that is gone, which a member has to find out.
    """
    moment = datetime.fromtimestamp(now, UTC)
    last = get_latest_completed_cron_tick(cron, moment, "UTC").timestamp()
    if plan.seen == 0.0:
        plan = Plan(last)
    elif last > plan.seen:
        plan = Plan(last, {str(tp): high for tp, high in highs.items()})
    if any(position < plan.goal.get(str(tp), 0) or position > highs[tp] for tp, position in positions.items()):
        return plan, Work(due=True)
    at = get_next_cron_tick(cron, moment, "UTC")
    wait = at.timestamp() - now
    return plan, Work(due=False, why=f"waiting for {at:%Y-%m-%d %H:%M} UTC, the next time of '{cron}', in {wait:.0f} s")


def on_lag(limits: OnLag, lag: int, overdue: bool) -> Work:
    """Whether enough waits. `overdue`: a record has waited for longer than `limits.seconds`."""
    if lag > 0 and (lag >= limits.records or overdue):
        return Work(due=True)
    if lag <= 0:
        return Work(due=False, why="nothing to read")
    seconds = f" or {limits.seconds:g} s of waiting" if limits.seconds is not None else ""
    return Work(due=False, why=f"starting from {limits.records:,} records{seconds} on")


def overdue(positions: Positions, first_young: Positions) -> bool:
    """Whether a record waits that is older than a moment, given the first offset of each partition that is younger than it."""
    return any(first_young.get(tp, position) > position for tp, position in positions.items())
