"""Finishing what rewrites, replays and restores left behind when they were killed between two commits. Doing so again changes
nothing.

Dead letters of a rewrite are written before it and marks after it. So what may be left is: dead letters that wait for a rewrite,
be it committed or not, and dead letters of committed rows that are not marked.
"""

from collections.abc import Collection, Iterable, Mapping

from deltalake import DeltaTable

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.staging import positions as ids
from consumers.staging.delta import Conflict, commit, transactions
from consumers.staging.history import commit_infos
from consumers.staging.log import METADATA_KEY, StagedCommit, newest_first
from consumers.staging.resolve import Resolver
from consumers.types import OffsetRange, TopicPartition, hulls

LEFT_BEHIND_SECONDS = 600.0
"""For so long the dead letters of an unfinished rewrite are left to whoever is writing it."""
_SKEW_MS = 600_000
_REMEMBER_EVERY = 100
_ATTEMPTS = 20


def mend(consumer: Consumer, clock: Clock) -> int:
    """Returns how many dead letters were marked as resolved. Does nothing while one of the two tables is missing.

    Cheap when nothing is left: it looks at the staged log since the last time, and at two columns of the dead letters.
    """
    if not all(DeltaTable.is_deltatable(str(path)) for path in (consumer.staged, consumer.dead_letters)):
        return 0
    table, resolver = DeltaTable(consumer.staged), Resolver(consumer, clock)
    _conclude(consumer, table, resolver, clock)
    table.update_incremental()
    version, settled = table.version(), resolver.settled()
    since = settled if settled <= version else -1
    past = list(newest_first(table, since))
    resolver.reopen(_undone(past))
    marked = sum(resolver.settle({tp: step}, by) for by, ranges in _changed(past).items() for tp, step in ranges.items())
    if version - settled > _REMEMBER_EVERY or settled > version:
        resolver.set_settled(version)
    return marked


def _changed(past: Iterable[StagedCommit]) -> dict[str, dict[TopicPartition, OffsetRange]]:
    """Where dead letters became rows: per schema that did it, one range of each partition that holds them all.

    What a restore has undone may be rows again that a rewrite had made dead letters of.
    """
    found: dict[str, dict[TopicPartition, OffsetRange]] = {}
    for each in past:
        if (each.kind in ("rewrite", "replay") and each.resolved) or each.kind == "move":
            found[each.schema_id] = hulls(found.get(each.schema_id, {}), each.ranges)
    return found


def _undone(past: Iterable[StagedCommit]) -> dict[TopicPartition, OffsetRange]:
    """Where restores have undone rewrites and replays."""
    found: dict[TopicPartition, OffsetRange] = {}
    for each in past:
        if each.kind == "move":
            found = hulls(found, each.ranges)
    return found


def _conclude(consumer: Consumer, table: DeltaTable, resolver: Resolver, clock: Clock) -> None:
    """Make the dead letters of committed rewrites final, and remove those of rewrites that will never be committed."""
    waiting = resolver.waiting()
    if not waiting:
        return
    table.update_incremental()
    resolver.conclude(committed := _committed(table, waiting))
    old = clock.time() * 1000 - LEFT_BEHIND_SECONDS * 1000
    left = {id_: at for id_, at in waiting.items() if id_ not in committed and at <= old}
    if left and _fence(consumer, table):
        resolver.conclude(committed := _committed(table, left))
        resolver.withdraw(left.keys() - committed)


def _fence(consumer: Consumer, table: DeltaTable) -> bool:
    """From now on no rewrite that began before can commit: what is not in the log by then never will be. False: not this time."""
    name = ids.rewrites_id(consumer.name)
    for _ in range(_ATTEMPTS):
        table.update_incremental()
        try:
            commit(table, table.schema(), [], [], transactions({name: (table.transaction_version(name) or 0) + 1}))
        except Conflict:
            continue
        return True
    return False


def _committed(table: DeltaTable, waiting: Mapping[str, int]) -> Collection[str]:
    """The rewrites among these that are in the log, which is read back to before the first of them wrote its dead letters.

    All of them where the log does not go back so far: a dead letter is kept rather than dropped.
    """
    first = min(waiting.values()) - _SKEW_MS
    found, last = set[str](), table.version() + 1
    for version, info in commit_infos(table, -1):
        last = version
        if METADATA_KEY in info:
            found.add(StagedCommit.from_json(info[METADATA_KEY], version, 0).commit_id)
        if int(info.get("timestamp", first)) < first:
            return found & waiting.keys()
    return found & waiting.keys() if last == 0 else waiting.keys()
