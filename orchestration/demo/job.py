"""The main job, watched: sample topics, ingestion and Spark jobs run by Dagster, until everything is there; then the verdicts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.clock import Clock
from consumers.config import Consumer
from orchestration.catalog import consumers
from orchestration.compute.job import Job
from orchestration.demo import verify, watch
from orchestration.local.errors import LocalError
from orchestration.samples import complete
from orchestration.samples.produce import Produced
from orchestration.samples.records import SAMPLES
from orchestration.settings import Settings

Progress = Callable[[str, int, int], None]
"""Told the name of a step, how much is done, and of how much (0: not known yet)."""

_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Demo:
    """Where the demo runs and what goes into it. `malformed` is the share of broken records."""

    settings: Settings
    bootstrap_servers: str
    malformed: float
    clock: Clock

    def consumers(self) -> dict[str, Consumer]:
        """The consumers of the sample topics."""
        known = consumers(self.settings)
        return {name: known[name] for name in SAMPLES}

    def produce(self, progress: Progress) -> dict[str, Produced]:
        """Have all sample topics complete."""
        produced = {}
        for topic in SAMPLES:
            produced[topic] = complete.complete(
                topic,
                self.bootstrap_servers,
                malformed=self.malformed,
                progress=lambda done, total, topic=topic: progress(f"produce {topic}", done, total),  # type: ignore[misc]
            )
            progress(f"produce {topic}", produced[topic].records, produced[topic].records)
        return produced

    def wait(self, progress: Progress, busy: Callable[[], list[str]], seconds: float) -> None:
        """Wait until Dagster has staged every record and computed every window, and `busy` names no run any more.

        Raises LocalError when that takes longer than `seconds`.
        """
        deadline = self.clock.monotonic() + seconds
        steps = self._steps()
        while True:
            running = busy()
            for name, step in list(steps.items()):
                done, total = step()
                progress(name, done, total)
                if total and done >= total:
                    del steps[name]
            if not steps and not running:
                return
            if self.clock.monotonic() > deadline:
                raise LocalError(
                    f"{', '.join([*steps, *running])} not finished after {seconds:.0f} s. What is committed is safe; look at the "
                    "runs in the Dagster UI (`weir up`), or run the same command again, which goes on from there"
                )
            self.clock.sleep(_POLL_SECONDS)

    def verdicts(self, produced: Mapping[str, Produced]) -> list[verify.Verdict]:
        """What came out against what must come out."""
        admin = KafkaAdmin(KafkaOptions(self.bootstrap_servers))
        found = [
            verify.staged_exactly_once(consumer, produced[name], admin.watermarks(consumer.config.topic))
            for name, consumer in self.consumers().items()
        ]
        tables = self.settings.tables
        found.append(verify.delays(tables / "airport_delays", self.malformed))
        found.append(verify.balances(tables / "account_balances", self.malformed))
        return found

    def _steps(self) -> dict[str, Callable[[], tuple[int, int]]]:
        admin = KafkaAdmin(KafkaOptions(self.bootstrap_servers))
        steps: dict[str, Callable[[], tuple[int, int]]] = {}
        for name, consumer in self.consumers().items():
            steps[f"stage {name}"] = lambda consumer=consumer: _staged(consumer, admin)  # type: ignore[misc]
        for output, job in watch.jobs(self.settings).items():
            steps[f"compute {output}"] = lambda job=job: _computed(job, self.consumers(), admin)  # type: ignore[misc]
        return steps


def _staged(consumer: Consumer, admin: KafkaAdmin) -> tuple[int, int]:
    found = watch.staged(consumer, admin.watermarks(consumer.config.topic))
    return found.done, found.total


def _computed(job: Job, known: Mapping[str, Consumer], admin: KafkaAdmin) -> tuple[int, int]:
    """Windows of the output that are up to date. It is not finished while one of its topics is still being staged."""
    found = watch.computed(job)
    arriving = any(done < total for done, total in (_staged(known[name], admin) for name in job.inputs if name in known))
    return min(found.done, found.total - 1) if arriving else found.done, found.total
