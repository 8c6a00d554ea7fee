"""Following a RESTORE: the positions go to where the restored version stood, as a move, so that everything after is read again.

One commit moves all positions of the table in new epochs, which fences every member that runs; of two who follow at once Delta
takes one. Dead letters are in another table, which was not restored: those of offsets that are read again go, as after any move;
those of rows that a replay or rewrite had made, and that are gone again, wait once more. The latter is finished by `mend` where
somebody is killed in between.
"""

import logging
import uuid
from dataclasses import replace

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.errors import OwnershipLost
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.log import StagedCommit, WindowChange
from consumers.staging.mend import mend
from consumers.staging.positions import topic_id_of
from consumers.staging.restore import BY, Restored
from consumers.staging.schema import schema_id
from consumers.staging.staged import StagedTable
from consumers.types import OffsetRange

log = logging.getLogger(__name__)


def follow(
    consumer: Consumer, found: Restored, staged: StagedTable, dead_letters: DeadLetterTable, member: str, clock: Clock
) -> StagedCommit:
    """Returns the commit that moved the positions. Raises `OwnershipLost`, with nothing changed, when somebody else committed."""
    seen = found.seen
    moved = {tp: OffsetRange(start, seen[tp].offset or start) for tp, start in found.starts.items() if start != seen[tp].offset}
    move = StagedCommit(
        commit_id=uuid.uuid4().hex,
        kind="move",
        consumer=consumer.name,
        member=member,
        topic_ids={tp.topic: topic_id_of(label) for tp, label in found.labels.items()},
        starts=found.starts,
        moved=moved,
        ranges=found.undone,
        windows={window: WindowChange(0, 0, 0) for window in found.windows},
        by=BY,
        why=f"table restored to version {found.restore.target}",
        schema_id=schema_id(consumer.config.columns),
        looked=found.looked,
    )
    taken, done = staged.move(seen, move, found.labels, dead_letters.epochs(seen))
    log.warning(
        "%s: the table was restored to version %d; read again: %s",
        consumer.name,
        found.restore.target,
        ", ".join(f"{tp} from offset {start}" for tp, start in sorted(found.starts.items())),
    )
    try:
        dead_letters.acquire({tp: replace(taken[tp], offset=start) for tp, start in found.starts.items()}, found.labels)
    except OwnershipLost as error:
        log.info("%s: a member has taken over after that, and has removed the dead letters: %s", consumer.name, error)
    mend(consumer, clock)
    return done
