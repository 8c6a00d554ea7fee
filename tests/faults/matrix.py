"""Runs scenarios one after the other, and tells what came of them as a table."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka as ck

from consumers.clock import SystemClock
from consumers.errors import WeirError
from orchestration.local.errors import LocalError
from tests.faults.kinds import Kinds
from tests.faults.lab import Lab
from tests.faults.scenario import Outcome, Scenario
from tests.kafka_fixture import kafka

_HEAD = ("scenario", "fault", "asked", "fired", "records", "recovery s", *Kinds().counts(), "verdict")
_BROKEN = (AssertionError, WeirError, LocalError, OSError, ck.KafkaException)


@dataclass(frozen=True)
class Choice:
    """What somebody chose instead of a scenario's own counts, and how everything is run."""

    seed: int
    times: int | None = None
    records: int | None = None
    pace: float = 1.0
    spark: bool = False


@dataclass
class Clusters:
    """Kafka clusters by the number of their brokers, started when a scenario needs one; all end with the stack."""

    folder: Path
    stack: ExitStack
    addresses: dict[int, str] = field(default_factory=dict)

    def of(self, brokers: int) -> str:
        """The address of the cluster with so many brokers."""
        if brokers not in self.addresses:
            self.addresses[brokers] = self.stack.enter_context(kafka(self.home(brokers), brokers))
        return self.addresses[brokers]

    def home(self, brokers: int) -> Path:
        """Where that cluster keeps its state."""
        return self.folder / f"kafka-{brokers}"


@dataclass(frozen=True)
class Row:
    """A line of the matrix."""

    scenario: Scenario
    outcome: Outcome
    seconds: float

    def cells(self) -> list[str]:
        """Its texts, in the order of the head."""
        out = self.outcome
        counts = [str(count) for count in out.kinds.counts().values()]
        moved = [str(out.asked), str(out.fired), f"{out.records:,}", f"{out.recovery_seconds:.1f}"]
        return [self.scenario.name, self.scenario.fault, *moved, *counts, out.verdict]


def run_all(scenarios: list[Scenario], choice: Choice) -> Iterator[Row]:
    """The rows, each as soon as it is known. Tables of scenarios that did not pass stay in a folder that is logged."""
    folder = Path(tempfile.mkdtemp(prefix="weir-faults-"))
    with ExitStack() as stack:
        stack.callback(_tidy, folder)
        clusters = Clusters(folder, stack)
        for each in scenarios:
            began = SystemClock().monotonic()
            outcome = run_one(each, clusters.of(each.brokers), folder / each.name, choice, clusters.home(each.brokers))
            if outcome.verdict == "passed":
                shutil.rmtree(folder / each.name, ignore_errors=True)
            else:
                logging.getLogger(__name__).warning("the tables of %s are left in %s", each.name, folder / each.name)
            yield Row(each, outcome, SystemClock().monotonic() - began)


def _tidy(folder: Path) -> None:
    """Remove the clusters' data, and the folder when nothing was left in it."""
    for cluster in folder.glob("kafka-*"):
        shutil.rmtree(cluster, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def run_one(scenario: Scenario, bootstrap: str, folder: Path, choice: Choice, home: Path | None = None) -> Outcome:
    """One scenario's outcome. One that could not be carried through is invalid, with the reason."""
    folder.mkdir(parents=True)
    times, records = choice.times or scenario.times, choice.records or scenario.records
    with closing(Lab(bootstrap, folder, choice.seed, choice.pace, choice.spark, home)) as lab:
        try:
            return scenario.run(lab, times, records, choice.seed)
        except _BROKEN as error:
            return Outcome(times, lab.fired, 0, float("inf"), note=f"{type(error).__name__}: {error}")


def told(row: Row) -> list[str]:
    """A row as lines for people: the figures, then what is wrong."""
    name, _, asked, fired, records, recovery, *counts, verdict = row.cells()
    figures = f"{name:26} {asked:>5} {fired:>5} {records:>9} {recovery:>8}"
    line = f"{figures}  {'  '.join(counts)}  {verdict} ({row.seconds:.0f} s)"
    return [line, *([f"  {row.outcome.note}"] if row.outcome.note else []), *(f"  {text}" for text in row.outcome.kinds.told())]


def heading() -> str:
    """What stands above the lines."""
    return f"{'scenario':26} {'asked':>5} {'fired':>5} {'records':>9} {'recovery':>8}  {'  '.join(Kinds().counts())}"


def markdown(rows: list[Row]) -> str:
    """The matrix for a page."""
    align = ["---" if name in ("scenario", "fault", "verdict") else "---:" for name in _HEAD]
    lines = [_HEAD, align, *(row.cells() for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
