"""Ingestion beside peers, interleaved in one run: `make bench`, or `python -m benchmarks.ingest --help`.

All read the same topic of the same broker with the same client settings and, but for the bare consumer, commit typed and checked
rows to Delta, which are then looked at. What counts is the ratio: machines differ and are noisy. A result that other work on the
machine disturbed is thrown away and measured again. Ends with 1 when a ratio falls short or could not be measured.
"""

import os
from dataclasses import replace
from typing import Annotated

import psutil
import typer
from rich.markup import escape

from benchmarks import contest, report
from benchmarks.cluster import cluster
from benchmarks.contest import Figures, Topic, Wrong
from benchmarks.contestants import TARGETS, Contestant, Target, contestants
from benchmarks.environments import NotToBeHad, Prepared, prepared
from benchmarks.machine import wait_until_quiet
from benchmarks.peers.task import BATCH_RECORDS
from benchmarks.rounds import out
from benchmarks.topic import VARIANTS, fill
from orchestration.settings import Settings

_FEWEST = 50_000
_QUIET_SECONDS = 120.0
_SIZES = {"small": 1_000_000, "large": 16_000_000}

Entries = dict[str, tuple[Contestant, Prepared, Topic]]
Rounds = list[dict[str, Figures]]


def main(
    records: Annotated[int, typer.Option(min=1000)] = 4_000_000,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    peers: Annotated[str, typer.Option(help="Which, with commas between: see the table. Default: all.")] = "",
    members: Annotated[int, typer.Option(min=2, help="How many of ours serve together.")] = max(2, os.cpu_count() or 1),
    variant: Annotated[str, typer.Option(help=f"Another topic, ours and the bare consumer: {', '.join(VARIANTS)}.")] = "plain",
    backlog: Annotated[
        bool, typer.Option("--backlog", help="Only our memory with 1 and with 16 million records waiting.")
    ] = False,
    dlt_sources: Annotated[str | None, typer.Option(help="A copy of dlt's verified sources, where it cannot fetch them.")] = None,
    patience: Annotated[int, typer.Option(min=1, help="How often to measure again what was disturbed.")] = 5,
    noisy: Annotated[bool, typer.Option("--noisy", help="Keep what was disturbed: for trials.")] = False,
    bootstrap: Annotated[str | None, typer.Option(help="A cluster to use instead of a fresh one.")] = None,
) -> None:
    """Measure, and print tables."""
    known = contestants(members)
    chosen = [name.strip() for name in peers.split(",")] if peers else list(known)
    if unknown := [name for name in chosen if name not in known]:
        raise typer.BadParameter(f"{', '.join(unknown)}: there are {', '.join(known)}", param_hint="--peers")
    if variant not in VARIANTS:
        raise typer.BadParameter(f"there are {', '.join(VARIANTS)}", param_hint="--variant")
    if variant != "plain":
        chosen = ["bare", "weir"]
    had, missing = _prepared({name: known[name] for name in chosen}, dlt_sources)
    with cluster(bootstrap) as servers:
        if backlog:
            failures = _backlog(servers, had["weir"])
        else:
            entries, targets = _entries(servers, had, records, variant)
            failures = _race(servers, entries, targets, rounds, 0 if noisy else patience)
    failures += [f"{known[name].title} is not to be had: {why}" for name, why in missing.items()]
    for failure in failures:
        out.print(escape(failure), style="red")
    raise typer.Exit(1 if failures else 0)


def _prepared(
    chosen: dict[str, Contestant], dlt_sources: str | None
) -> tuple[dict[str, tuple[Contestant, Prepared]], dict[str, str]]:
    """Those that can be had, and why the others cannot."""
    had, missing = {}, {}
    for name, contestant in chosen.items():
        try:
            had[name] = contestant, prepared(contestant.environment, Settings.load(), dlt_sources)
        except NotToBeHad as error:
            missing[name] = str(error)
    return had, missing


def _entries(
    servers: str, had: dict[str, tuple[Contestant, Prepared]], records: int, variant: str
) -> tuple[Entries, list[Target]]:
    """Who reads which topic, and what is to be reached."""
    topics: dict[tuple[str, int], Topic] = {}

    def topic(kind: str, share: float) -> Topic:
        wanted = max(min(records, _FEWEST), int(records * share * VARIANTS[kind].share))
        wanted -= wanted % BATCH_RECORDS if wanted > BATCH_RECORDS else 0  # nobody waits for a last batch to fill
        if (kind, wanted) not in topics:
            topics[kind, wanted] = _filled(servers, kind, wanted)
        return topics[kind, wanted]

    entries = {name: (who, how, topic(variant, who.share)) for name, (who, how) in had.items()}
    targets = [target for target in TARGETS if target.who in entries and target.beside in entries and variant == "plain"]
    if (least := VARIANTS[variant].least) is not None:
        who, how = had["weir"]
        entries["plain"] = replace(who, title="Weir, plain topic"), how, topic("plain", 1.0)
        targets.append(Target("weir", "plain", least))
    return entries, targets


def _filled(servers: str, kind: str, records: int) -> Topic:
    name = f"bench-{kind}-{records}"
    size, rows = fill(servers, name, records, VARIANTS[kind])
    return Topic(name, kind, records, size, rows)


def _race(servers: str, entries: Entries, targets: list[Target], rounds: int, patience: int) -> list[str]:
    """All rounds; prints them; what went wrong or falls short."""
    done: Rounds = []
    failures: list[str] = []
    kept = 0
    for number in range(rounds):
        one: dict[str, Figures] = {}
        for name, (who, how, topic) in list(entries.items()):
            try:
                one[name] = _undisturbed(f"round {number + 1}, {who.title}", patience, who, how, servers, topic)
            except Wrong as error:
                failures.append(str(error))
                del entries[name]
        kept += sum(figures.noise.disturbs for figures in one.values())
        done.append(one)
    found = {name: [one[name] for one in done] for name in entries}
    report.figures(entries, found)
    if kept:
        out.print(f"[yellow]{kept} of the results were disturbed and were kept: these figures prove nothing[/yellow]")
    return failures + report.ratios(entries, found, targets)


def _undisturbed(what: str, patience: int, who: Contestant, how: Prepared, servers: str, topic: Topic) -> Figures:
    """A result that counts; where `patience` is 0, any. Raises Wrong when there is none."""
    for _ in range(max(1, patience)):
        if patience:
            wait_until_quiet(servers, _QUIET_SECONDS)
        found = contest.run(who, how, servers, topic)
        load = psutil.getloadavg()[0]
        out.print(f"{what}: {found.rate / 1000:,.0f} k/s {found.note} (load {load:.1f}, {found.noise})", style="dim")
        if not found.noise.disturbs or not patience:
            return found
        out.print(f"[yellow]{what}: thrown away: {found.noise}[/yellow]")
    raise Wrong(f"{what}: {patience} results were disturbed by other work on this machine; measure when it is quiet")


def _backlog(servers: str, weir: tuple[Contestant, Prepared]) -> list[str]:
    """Our memory with a small and a large backlog; it is to be under 800 MB and flat."""
    peaks = []
    for name, records in _SIZES.items():
        found = contest.run(*weir, servers, _filled(servers, "plain", records))
        peaks.append(found.peak_mb)
        out.print(f"{name} backlog, {records:,} records: peak {found.peak_mb:.0f} MB, {found.rate / 1000:.0f} k/s")
    out.print(f"large / small: {peaks[1] / peaks[0]:.2f} (at most 1.15)")
    failures = [f"peak memory of {peak:.0f} MB is over 800 MB" for peak in peaks if peak > 800]
    return failures + ([f"memory grows with the backlog: {peaks}"] if peaks[1] > 1.15 * peaks[0] else [])


if __name__ == "__main__":
    typer.run(main)
