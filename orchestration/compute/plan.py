"""What a job would have to do now, and why: nothing, some windows, what is new in an input, or all of it."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from consumers.staging.schema import WINDOW
from orchestration.compute.changes import Changes, changes
from orchestration.compute.job import WHOLE, Job
from orchestration.compute.output import NO_TABLE, Output, laid_out, read_output
from orchestration.compute.pins import Pinned, pin_together
from orchestration.compute.windows import digest
from spark_jobs.request import Request, Source

ATTEMPT = "attempt-"
"""How the folders begin that hold what is not published yet."""


@dataclass(frozen=True)
class Plan:
    """Pinned inputs, the output as it is, and what is to be computed.

    `fingerprints` says what each window that was looked at should be, `stale` which are not that; a job that is not computed by
    window has one, "". `sources` are the inputs as they are to be read. `whole`: the result replaces all of the output; else, in
    mode incremental, it replaces the windows of `changes`. `reason` says it in words, with numbers.

    `identity` and `code_version` are the job's at this moment: its file may change while it runs.
    """

    job: Job
    inputs: Mapping[str, Pinned]
    output: Output
    fingerprints: Mapping[str, str]
    stale: tuple[str, ...]
    reason: str
    sources: Mapping[str, Source] = field(default_factory=dict)
    whole: bool = False
    changes: Changes | None = None
    identity: str = ""
    code_version: str = ""

    @property
    def versions(self) -> str:
        """For people: `flights v41, weather v12`."""
        return ", ".join(f"{name} v{pinned.version}" for name, pinned in self.inputs.items())

    def work(self, chosen: Sequence[str]) -> str:
        """16 hex digits that are the same for the same work on these of the stale windows."""
        return digest(f"{window}={self.fingerprints[window]}" for window in chosen)


def plan(job: Job, windows: Sequence[str] | None = None) -> Plan:
    """Compare the output, or these windows of it, with what it should be. All inputs must exist."""
    identity, code_version = job.identity(), job.code_version()
    inputs, output = pin_together(job), read_output(job)
    if job.follows_commits:
        found = _by_changes(job, inputs, output)
    else:
        found = _by_content(job, inputs, output, windows if job.windowed else [WHOLE])
    return replace(found, identity=identity, code_version=code_version)


def request(plan: Plan, attempt: str = "") -> Request:
    """What is to be computed, into a folder of its own inside of the output; `attempt` names it, by default anew."""
    job = plan.job
    wanted = {window: plan.fingerprints[window] for window in plan.stale}
    return Request(
        job=job.name,
        function=job.function,
        mode=job.mode,
        inputs=plan.sources,
        output=str(job.output),
        attempt=str(job.output / f"{ATTEMPT}{attempt or uuid.uuid4().hex}"),
        output_version=NO_TABLE if plan.whole else plan.output.version,
        fingerprints={} if job.follows_commits else wanted,
        parameters=job.parameters,
        keys=job.keys,
        buckets=job.buckets,
        audits=job.audits,
    )


def _looked_at(job: Job, inputs: Mapping[str, Pinned], output: Output) -> list[str]:
    """The windows that an input has rows of, and those of the output, which may have to go."""
    found = set(output.fingerprints)
    for name, pinned in inputs.items():
        reach = job.inputs[name].reach
        if not reach.whole:
            found |= {reach.own(window) for window in pinned.contents}
    return sorted(found)


def _by_content(job: Job, inputs: Mapping[str, Pinned], output: Output, asked: Sequence[str] | None) -> Plan:
    identity = job.identity()
    unlike = output.version != NO_TABLE and not laid_out(job, output.partition_by)
    every = _looked_at(job, inputs, output) if job.windowed else [WHOLE]
    spoiled = _spoiled(output, job, every)
    # A table of another layout is replaced whole, and a publication hides what strangers did before it: all of that is due now.
    windows = every if asked is None or unlike else sorted({*asked, *spoiled})
    held = {
        name: pinned.contents if job.mode == "full" else job.inputs[name].reach.contents(windows, pinned.contents)
        for name, pinned in sorted(inputs.items())
    }
    wanted = {
        window: digest([identity, *(f"{name}={each.get(window, '')}" for name, each in held.items())]) for window in windows
    }
    stale = tuple(w for w in wanted if w in spoiled or not output.holds(job.name, w, wanted[w]))
    what = f"{len(stale)} of {len(wanted)} windows" if job.windowed else "all of it" if stale else "nothing"
    reason = f"unchanged: {len(wanted) - len(stale)} windows; to compute: {what}" if job.windowed else f"to compute: {what}"
    if unlike:
        reason += f"; the table is partitioned by {', '.join(output.partition_by) or 'nothing'} and is replaced as a whole"
    if spoiled:
        reason += f"; the output was changed by {output.foreign}, which is none of this job's"
    sources = {name: _source(job, name, pinned, stale) for name, pinned in inputs.items()}
    return Plan(job, inputs, output, wanted, stale, reason, sources, whole=unlike or job.mode == "full")


def _spoiled(output: Output, job: Job, every: Sequence[str]) -> frozenset[str]:
    """The windows that somebody else has changed since the newest publication: their fingerprints say nothing any more."""
    if not output.foreign or output.last is None:
        return frozenset()
    found = changes(job.output, output.last.version, output.version)
    if found.start_over or not job.windowed:
        return frozenset(every)
    return frozenset({*found.windows, *found.added_to})


def _source(job: Job, name: str, pinned: Pinned, stale: Sequence[str]) -> Source:
    reach = job.inputs[name].reach
    if not job.windowed or reach.whole:
        return Source(str(pinned.path), pinned.version)
    held = sorted(pinned.contents)
    needed = tuple(sorted({window for each in stale for window in _of(reach.same, each, pinned) or reach.of(each, held)}))
    return Source(str(pinned.path), pinned.version, windows=None if len(needed) == len(held) else needed)


def _of(same: bool, window: str, pinned: Pinned) -> list[str]:
    return [window] if same and window in pinned.contents else []


def _by_changes(job: Job, inputs: Mapping[str, Pinned], output: Output) -> Plan:
    followed = inputs[job.followed]
    why = next(_objections(job, followed, output), "")
    found = None
    if not why:
        known = output.known(job.name, job.followed)
        found = changes(followed.path, min(known or 0, followed.version), followed.version)
        why = _cannot_follow(job, output, found)
    fingerprint = digest([job.identity(), str(output.published), *(str(pinned.version) for pinned in inputs.values())])
    stale = (WHOLE,) if why or found else ()
    sources = {name: Source(str(pinned.path), pinned.version) for name, pinned in inputs.items()}
    if found is not None and not why:
        sources[job.followed] = Source(
            str(followed.path), followed.version, found.windows or None, found.files, schema=followed.schema
        )
    reason = f"starting over: {why}" if why else _told(job.followed, found)
    return Plan(job, inputs, output, {WHOLE: fingerprint}, stale, reason, sources, bool(why), None if why else found)


def _objections(job: Job, followed: Pinned, output: Output) -> Iterator[str]:
    """Why what is new in the input cannot be added to the output as it is; none where it can."""
    last, known, name = output.last, output.known(job.name, job.followed), job.followed
    if output.version == NO_TABLE:
        yield "there is no table yet"
    if not laid_out(job, output.partition_by):
        yield f"the table is partitioned by {', '.join(output.partition_by) or 'nothing'}, as another mode does it"
    if last is None or known is None:
        yield "the table's log does not say what it was computed from"
        return
    if output.foreign:
        yield f"the output was changed by {output.foreign}, which is none of this job's"
    if last.identity != job.identity():
        yield "code, parameters, keys or mode are not those that the table was computed with"
    used = last.inputs.get(name)
    if used is None or used.path != followed.name or used.table_id != followed.table_id:
        yield f"{name} is another table than the one it was computed from"
    if known > followed.newest:
        yield f"{name} is at version {followed.newest}, and version {known} was computed: it was built again"


def _cannot_follow(job: Job, output: Output, found: Changes) -> str:
    if found.start_over:
        return found.start_over
    if job.mode == "merge" and found.unordered:
        return f"{found.unordered} of {job.followed} is no batch in the order of its offsets"
    if found.windows and WINDOW not in output.partition_by:
        return f"{len(found.windows)} windows of {job.followed} hold other rows, and the output has no windows"
    return ""


def _told(name: str, found: Changes | None) -> str:
    if not found:
        return f"unchanged: nothing new in {name}"
    parts = [f"{found.rows:,} new rows in {len(found.files):,} files"] if found.files else []
    parts += [f"{len(found.windows):,} windows with other rows"] if found.windows else []
    return f"to compute: {' and '.join(parts)} of {name}, versions {found.after + 1} to {found.version}"
