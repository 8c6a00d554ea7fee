"""A member is stopped at each of its steps, and meanwhile the table is compacted, vacuumed, moved back or restored."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from itertools import cycle

from deltalake import DeltaTable

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.maintenance import Maintenance
from consumers.processing.move import Mover
from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from orchestration.maintenance.compaction import compact
from orchestration.maintenance.vacuum import vacuum
from tests.faults.lab import Lab
from tests.faults.process import Child
from tests.faults.scenario import Outcome, scenario

_STEPS = (
    "after a poll",
    "after a file is written",
    "before the dead-letter commit",
    "before the staged commit",
    "after the staged commit",
)
_SETTINGS = Maintenance(newest_windows=0, keep_hours=24)
_LONG_AGO = 1_600_000_000
Other = Callable[[Lab], None]


@scenario("append against compaction, vacuum, delete, restore", times=200)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """For each step a member that stops at it again and again, with the next operation each time."""
    batch = max(1, records // times)
    lab.set_up(batch)
    others: cycle[Other] = cycle([compaction, vacuuming, deletion, restoring])
    with lab.faults():
        for number, step in enumerate(_STEPS):
            share = times * (number + 1) // len(_STEPS)
            lab.produce(records // len(_STEPS))
            while lab.strikes < share:
                stop_and_go(lab, batch, step, share - lab.strikes, others)
    lab.catch_up(batch)
    return lab.outcome(times)


def stop_and_go(lab: Lab, batch: int, step: str, most: int, others: "cycle[Other]") -> None:
    """One member's life, up to so many stops. It may end by itself, caught up or having lost too often."""
    lab.produce(batch * 3)
    order = lab.order(batch, point=step, fault=signal.SIGSTOP, again=True, until_caught_up=False, max_seconds=3600)
    with lab.child(order) as member:
        for _ in range(most):
            if not stopped(lab, member):
                return
            next(others)(lab)
            member.signal(signal.SIGCONT)


def stopped(lab: Lab, member: Child) -> bool:
    """Wait until it stops at its step; false where it ended, or has nothing left to do."""
    try:
        member.wait_until_stopped(10)
    except AssertionError:
        return False
    return True


def compaction(lab: Lab) -> None:
    """Make one file of each window's small ones."""
    if (table := _table(lab)) is not None:
        compact(table, _SETTINGS)


def vacuuming(lab: Lab) -> None:
    """Remove what a dead run left long ago."""
    if (table := _table(lab)) is not None:
        left = lab.consumer.staged / "attempt-dead" / "part-0.parquet"
        left.parent.mkdir(exist_ok=True)
        left.touch()
        os.utime(left, (_LONG_AGO, _LONG_AGO))
        vacuum(table, _SETTINGS.keep_hours, lab.clock)
        assert not left.exists()


def deletion(lab: Lab) -> None:
    """Take the newest rows away by moving the positions back."""
    where = committed_positions(lab.consumer.staged, lab.consumer.name, lab.consumer.config.topic, lab.partitions)
    back = {tp.partition: at - min(at, 20) for tp, at in where.items() if at}
    if back:
        with closing(KafkaAdmin(KafkaOptions(lab.bootstrap))) as admin:
            Mover(lab.consumer, admin, lab.clock, lab.chance).move(back, by="the lab", why="a fault", member="lab")


def restoring(lab: Lab) -> None:
    """Delta's own RESTORE, to before the last batches."""
    batches = [commit.version for commit in commits(lab.consumer.staged) if commit.kind == "batch"]
    if len(batches) > 3 and (table := _table(lab)) is not None:
        table.restore(batches[-3])


def _table(lab: Lab) -> DeltaTable | None:
    path = lab.consumer.staged
    return DeltaTable(path) if DeltaTable.is_deltatable(str(path)) else None
