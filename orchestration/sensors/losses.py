"""Losses of offsets that made a member fail, and whether they are accepted by now. Asks the table's log, not Kafka.

That the offsets in question are in the topic proves nothing: a log that was cut short may have grown past them again.
"""

import dagster as dg
from deltalake import DeltaTable

from consumers.config import Consumer
from consumers.staging.log import newest_first

ACCEPTED_TAG = "weir/loss-accepted"
"""On a run that failed because of a loss: the table version that went on past it."""


def accepted(instance: dg.DagsterInstance, consumer: Consumer, run: dg.DagsterRun, ended: float, message: str) -> bool:
    """Whether somebody went on past the loss that a run failed with, `ended` seconds since the epoch.

    That is a commit since then that set the position of the partition which the message names: of a member that was allowed to
    record the loss, or of a move. It is noted at the run, so that the log is not searched again.
    """
    if ACCEPTED_TAG in run.tags:
        return True
    version = _went_on(consumer, ended, message)
    if version is not None:
        instance.add_run_tags(run.run_id, {ACCEPTED_TAG: str(version)})
    return version is not None


def _went_on(consumer: Consumer, since: float, message: str) -> int | None:
    if not DeltaTable.is_deltatable(str(consumer.staged)):
        return None
    for commit in newest_first(DeltaTable(consumer.staged)):
        if commit.committed_at_ms / 1000 <= since:
            return None
        if any(f" {tp}: " in f" {message}" for tp in commit.starts):
            return commit.version
    return None
