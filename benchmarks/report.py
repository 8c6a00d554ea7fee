"""The tables of the ingestion benchmark: figures of each contestant, and ratios beside what they are to reach."""

import statistics
from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from benchmarks.contest import Figures, Topic
from benchmarks.contestants import Contestant, Target
from benchmarks.environments import Prepared
from benchmarks.rounds import out

Entries = Mapping[str, tuple[Contestant, Prepared, Topic]]
Found = Mapping[str, Sequence[Figures]]


def figures(entries: Entries, found: Found) -> None:
    """Medians with their spread."""
    table = Table(title=f"{len(next(iter(found.values()), []))} rounds", title_justify="left")
    for column in ("--peers", "", "promise", "records", "bytes", "k/s", "min", "max", "CPU µs a record", "peak MB"):
        table.add_column(column, justify="left" if column in ("--peers", "", "promise") else "right")
    for name, (who, _, topic) in entries.items():
        rates = [one.rate / 1000 for one in found[name]]
        table.add_row(
            *(name, who.title, who.promise, f"{topic.records:,}", f"{topic.bytes_each:,.0f}"),
            *(f"{rate:,.1f}" for rate in (statistics.median(rates), min(rates), max(rates))),
            f"{statistics.median(one.cpu for one in found[name]):,.1f}",
            f"{max(one.peak_mb for one in found[name]):,.0f}",
        )
    out.print(table)
    for who, _, _ in entries.values():
        if who.environment is not None:
            out.print(escape(f"{who.title}: {', '.join((*who.environment.requirements, *who.environment.jars))}"), style="dim")


def ratios(entries: Entries, found: Found, targets: Sequence[Target]) -> list[str]:
    """Each of ours beside each other in the same round; what falls short, in words."""
    table = Table(title="Ratios of rates in the same round", title_justify="left")
    for column in ("", "beside", "median", "min", "max", "at least", ""):
        table.add_column(column, justify="left" if column in ("", "beside") else "right")
    wanted = {(target.who, target.beside): target.least for target in targets}
    ours = [name for name in ("weir", "members") if name in entries]
    pairs = [(who, beside) for who in ours for beside in entries if beside not in ours or (who, beside) == ("members", "weir")]
    short = []
    for who, beside in pairs:
        each = [one.rate / other.rate for one, other in zip(found[who], found[beside], strict=True)]
        median, least = statistics.median(each), wanted.get((who, beside))
        names = entries[who][0].title, entries[beside][0].title
        verdict = "" if least is None else "reached" if median >= least else "[red]falls short[/red]"
        spread = (f"{ratio:.2f}" for ratio in (median, min(each), max(each)))
        table.add_row(*names, *spread, "" if least is None else f"{least:g}", verdict)
        if least is not None and median < least:
            short.append(f"{names[0]} is {median:.2f} times as fast as {names[1]}, not {least:g} times")
    if pairs:
        out.print(table)
    return short
