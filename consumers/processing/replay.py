"""Dead letters tried again with today's definition: those that it makes rows of are staged and marked, the others stay.

Exactly once without a lock: the rows of a chunk land in one commit that takes only records without a staged row, and of two such
commits from one snapshot Delta takes one. Marks come after it, and follow the staged rows. So whoever is killed between any two
steps, or runs twice at once, doubles nothing, and the next one finishes what is left.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from consumers.clock import Clock
from consumers.config import Consumer
from consumers.processing.backfill.records import records_of
from consumers.processing.decoding import decoder_for
from consumers.processing.strategies.protocol import Message
from consumers.processing.strategies.stage.buffer import Shaped, shape
from consumers.staging.local import local_dataset, text
from consumers.staging.log import StagedCommit
from consumers.staging.places import absent_from
from consumers.staging.resolve import WAITING
from consumers.staging.rewrite import Rewriter
from consumers.staging.schema import DEAD_LETTERS, PLACE, WINDOW, filled, staged_schema
from consumers.types import OffsetRange, TopicPartition

NOT_OURS = "by today's definition the record does not belong to this table"
_READ_ROWS = 256


@dataclass(frozen=True)
class Selection:
    """Which dead letters: all of these conditions, where one is given. `ids` are (partition, offset)."""

    reason: str | None = None
    windows: frozenset[str] = frozenset()
    ids: frozenset[tuple[int, int]] = frozenset()

    def filter(self) -> ds.Expression:
        """As a filter of the dead-letter table."""
        wanted = WAITING
        if self.reason is not None:
            wanted = wanted & pc.match_substring(text("_reason"), self.reason)
        if self.windows:
            wanted = wanted & text(WINDOW).isin(sorted(self.windows))
        if self.ids:
            wanted = wanted & self._named()
        return wanted

    def _named(self) -> ds.Expression:
        named = ds.scalar(False)
        for partition in {partition for partition, _ in self.ids}:
            offsets = pa.array(sorted(offset for p, offset in self.ids if p == partition), pa.int64())
            named = named | ((pc.field("_partition") == partition) & pc.field("_offset").isin(offsets))
        return named


@dataclass(frozen=True, slots=True)
class Author:
    """Who does it and why, for the table's log; `member` is the process, such as a run's id."""

    by: str = ""
    why: str = ""
    member: str = ""


@dataclass(frozen=True)
class ReplayResult:
    """What became of the dead letters that were selected; counts are of records.

    `fixed` are rows now (of a dry run: would be), `still_invalid` stay, `already_resolved` were rows before and are marked now.
    `not_final` were left alone: their offsets are not committed yet, or they are of a topic that was replaced. The two mappings
    have the same by reason: by the reason that a dead letter had, and by the one that it has now.
    """

    fixed: int = 0
    still_invalid: int = 0
    already_resolved: int = 0
    not_final: int = 0
    fixed_by_reason: Mapping[str, int] = field(default_factory=dict)
    invalid_by_reason: Mapping[str, int] = field(default_factory=dict)
    commits: tuple[StagedCommit, ...] = ()

    @property
    def selected(self) -> int:
        """All of them."""
        return self.fixed + self.still_invalid + self.already_resolved + self.not_final

    def plus(self, other: "ReplayResult") -> "ReplayResult":
        """Both together."""
        return ReplayResult(
            self.fixed + other.fixed,
            self.still_invalid + other.still_invalid,
            self.already_resolved + other.already_resolved,
            self.not_final + other.not_final,
            Counter(self.fixed_by_reason) + Counter(other.fixed_by_reason),
            Counter(self.invalid_by_reason) + Counter(other.invalid_by_reason),
            self.commits + other.commits,
        )


class Replay:
    """One pass over a consumer's dead letters. One thread's own."""

    def __init__(self, consumer: Consumer, clock: Clock, code_version: str | None = None, author: Author | None = None) -> None:
        """`code_version` is what resolved dead letters are marked with; by default the id of the schema."""
        self._consumer = consumer
        self._clock = clock
        self._author = author or Author()
        self._decoder = decoder_for(consumer.config)
        self._schema = staged_schema(consumer.config.columns, consumer.config.keep_raw)
        self._rewriter = Rewriter(consumer, clock, code_version, self._author.member)

    def chunk(self, letters: pa.Table, dry_run: bool) -> ReplayResult:
        """Try these dead letters (columns of `DEAD_LETTERS`) again, in one commit, and mark them."""
        final, staged = self._rewriter.judge(letters)
        tried = letters.filter(pa.array(final & ~staged))
        rows, rejects = self._decoded(tried)
        commit, added = (None, rows) if dry_run else self._rewriter.replay(rows, self._author.by, self._author.why)
        if not dry_run:
            self._rewriter.mark(letters.filter(pa.array(final | staged)), rejects)
        fixed = ~absent_from(added, tried)
        return ReplayResult(
            fixed=int(fixed.sum()),
            still_invalid=rejects.num_rows,
            already_resolved=int(staged.sum()) + rows.num_rows - added.num_rows,
            not_final=int((~final & ~staged).sum()),
            fixed_by_reason=_count(tried.filter(pa.array(fixed))),
            invalid_by_reason=_count(rejects),
            commits=() if commit is None else (commit,),
        )

    def _decoded(self, letters: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Rows, and the rest as dead letters."""
        made = [*self._shaped(letters)]
        rows = pa.concat_tables([self._schema.empty_table(), *(filled(each.rows, self._schema) for each in made)])
        rejects = [filled(each.rejects, DEAD_LETTERS) for each in made if each.rejects is not None]
        found = pa.concat_tables([DEAD_LETTERS.empty_table(), *rejects])
        passed = letters.filter(pa.array(absent_from(rows, letters) & absent_from(found, letters)))
        at = DEAD_LETTERS.get_field_index("_reason")
        passed = filled(passed, DEAD_LETTERS).set_column(at, "_reason", pa.array([NOT_OURS] * passed.num_rows, pa.string()))
        return rows, pa.concat_tables([found, passed])

    def _shaped(self, letters: pa.Table) -> Iterator[Shaped]:
        now_ms = int(self._clock.time() * 1000)
        for topic in letters["_topic"].unique().to_pylist():
            for records, labels in records_of(letters.filter(pc.equal(letters["_topic"], topic))):
                tps = {TopicPartition(topic, p): OffsetRange(0, 0) for p in records["partition"].unique().to_pylist()}
                message = Message(records, tps, (records,))
                config, known = self._consumer.config, dict.fromkeys(tps, labels[0].as_py())
                yield shape(message, self._decoder, config.window, known, now_ms, config.keep_raw)


def replay(
    consumer: Consumer,
    select: Selection,
    code_version: str | None,
    clock: Clock,
    *,
    dry_run: bool = False,
    author: Author | None = None,
    progress: Callable[[ReplayResult], None] = lambda result: None,
) -> ReplayResult:
    """Try the selected dead letters of a consumer again, in chunks of the size of a batch.

    Beside ingestion, and beside other replays and rewrites. `progress` hears of the result so far after every chunk. May be
    interrupted anywhere: what is committed is right, and the same call goes on from there.
    """
    result = ReplayResult()
    if not all(DeltaTable.is_deltatable(str(path)) for path in (consumer.staged, consumer.dead_letters)):
        return result
    work = Replay(consumer, clock, code_version, author)
    for letters in _chunks(consumer, select):
        result = result.plus(work.chunk(letters, dry_run))
        progress(result)
    return result


def _chunks(consumer: Consumer, select: Selection) -> Iterator[pa.Table]:
    """The selected dead letters of the table as it is now, however it changes meanwhile."""
    columns = [*PLACE, "_timestamp", "_key", "_headers", "_value", "_reason", WINDOW]
    dataset = local_dataset(DeltaTable(consumer.dead_letters))
    limits, held, rows, nbytes = consumer.config.batch, [], 0, 0
    pieces = dataset.to_batches(
        columns=columns,
        filter=select.filter(),
        batch_size=min(_READ_ROWS, limits.max_records),
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in pieces:
        held.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if rows >= limits.max_records or nbytes >= limits.max_bytes:
            yield pa.Table.from_batches(held)
            held, rows, nbytes = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def _count(letters: pa.Table) -> dict[str, int]:
    counted = letters["_reason"].value_counts().to_pylist()
    return {str(each["values"]): int(each["counts"]) for each in counted}
