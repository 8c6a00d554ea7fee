"""The whole platform for tests: real Kafka, sample topics, Dagster's webserver and daemon as processes of their own.

Tests see it as an operator does, through GraphQL and the event log, and as an auditor does, through the tables.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.types import TopicPartition, Watermarks
from orchestration import mirror
from orchestration.catalog import consumers
from orchestration.demo import watch
from orchestration.event_log import instance_of
from orchestration.local.cluster import running_cluster
from orchestration.local.stack import Dagster, dagster_home, running_dagster
from orchestration.samples import produce
from orchestration.settings import Settings
from tests.kafka_fixture import settings_in

RECORDS = {"flights": 20_000, "weather": 1_600, "transactions": 20_000}
"""What the topics hold at first: the flights of 23 days, the weather of 22, the transactions of 6."""
UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "weir"}
_POLL_SECONDS = 0.2
_clock = SystemClock()


@dataclass
class Platform:
    """A running platform."""

    settings: Settings
    bootstrap_servers: str
    dagster: Dagster
    instance: dg.DagsterInstance
    admin: KafkaAdmin

    def consumer(self, name: str) -> Consumer:
        """A consumer with its tables' places."""
        return consumers(self.settings)[name]

    def marks(self, topic: str) -> dict[TopicPartition, Watermarks]:
        """The topic's watermarks."""
        return self.admin.watermarks(topic)

    def staged_all(self, name: str) -> bool:
        """Whether every record of the topic is accounted for."""
        found = watch.staged(self.consumer(name), self.marks(name))
        return found.done >= found.total

    def mirrored(self, name: str) -> bool:
        """Whether the newest event of every window is of its newest commit, those of a moment ago included."""
        return mirror.compare(self.instance, self.consumer(name), _clock) == []

    def computed(self, output: str) -> bool:
        """Whether every window of a job's output is up to date and no run works on it any more."""
        found = watch.computed(watch.jobs(self.settings)[output])
        return 0 < found.total == found.done and not self.runs(f"{output}_job", UNFINISHED)

    def runs(self, job: str, statuses: list[dg.DagsterRunStatus]) -> list[str]:
        """Ids of the job's runs in these states, newest first."""
        found = self.instance.get_runs(dg.RunsFilter(job_name=job, statuses=statuses))
        return [run.run_id for run in found]

    def status(self, run: str) -> dg.DagsterRunStatus:
        """The state of a run."""
        found = self.instance.get_run_by_id(run)
        assert found is not None
        return found.status

    def pid(self, run: str) -> int:
        """The process that executes a run, as its log says."""
        for entry in self.instance.all_logs(run):
            event = entry.dagster_event
            if event and (value := event.event_specific_data) and "pid" in getattr(value, "metadata", {}):
                return int(str(value.metadata["pid"].value))  # type: ignore[union-attr]
        raise AssertionError(f"the log of run {run} names no process")

    def materializations(self, *key: str) -> list[dg.AssetMaterialization]:
        """All materializations of an asset, oldest first."""
        records, cursor = [], None
        while True:
            page = self.instance.fetch_materializations(dg.AssetKey(key), limit=1000, cursor=cursor, ascending=True)
            records += [record.asset_materialization for record in page.records if record.asset_materialization]
            if not page.has_more:
                return records
            cursor = page.cursor

    def ask(self, query: str, **variables: Any) -> Any:
        """The answer to a GraphQL question, as the UI asks it; fails the test when it is an error."""
        request = urllib.request.Request(
            f"{self.dagster.url}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            # An error within the answer comes as a 500.
            found = json.load(error)
        assert "errors" not in found, found["errors"]
        (data,) = found["data"].values()
        assert "message" not in (data or {}), data
        return data

    def terminate(self, run: str) -> None:
        """What the UI's Terminate button does."""
        found = self.ask(
            "mutation($id: String!) { terminateRun(runId: $id) { __typename ... on TerminateRunFailure { message } } }", id=run
        )
        assert found["__typename"] == "TerminateRunSuccess", found

    @contextmanager
    def without_sensor(self, name: str) -> Iterator[None]:
        """The sensor is switched off in this block."""
        selector = {**_REPOSITORY, "sensorName": name}
        found = self.ask(
            "query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState { id } } } }",
            s=selector,
        )
        state = found["sensorState"]["id"]
        self.ask("mutation($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }", id=state)
        try:
            yield
        finally:
            self.ask(
                "mutation($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename ... on PythonError { message } } }",
                s=selector,
            )

    def environment(self) -> dict[str, str]:
        """What a `weir` command on this platform needs to be told."""
        own = {
            "WEIR_HOME": self.settings.home,
            "WEIR_TABLES": self.settings.tables,
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
        }
        return {**os.environ, **{name: str(value) for name, value in own.items()}}

    def weir(self, *arguments: str) -> str:
        """Run a command; its output."""
        done = subprocess.run(
            [sys.executable, "-m", "orchestration.cli", *arguments],
            cwd=self.settings.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def until(self, condition: Callable[[], bool], what: str, seconds: float) -> float:
        """Wait until the condition holds; the seconds that took. Fails the test with the platform's state after `seconds`."""
        began = _clock.monotonic()
        while not condition():
            self.dagster.require_alive()
            if _clock.monotonic() - began > seconds:
                pytest.fail(f"not within {seconds:g} s: {what}\n{self._sensors()}\n{self._log()}")
            _clock.sleep(_POLL_SECONDS)
        return _clock.monotonic() - began

    def _sensors(self) -> str:
        found = self.ask(
            "query($r: RepositorySelector!) { sensorsOrError(repositorySelector: $r) { ... on Sensors { results {"
            " name sensorState { status ticks(limit: 1) { status skipReason error { message } } } } } } }",
            r=_REPOSITORY,
        )
        return "\n".join(f"{each['name']}: {each['sensorState']}" for each in found["results"])

    def _log(self) -> str:
        return "\n".join(self.dagster.log.read_text(errors="replace").splitlines()[-40:])


@contextmanager
def running_platform(folder: Path) -> Iterator[Platform]:
    """A platform with filled topics, whose sensors have just been switched on; stopped at the end."""
    settings = settings_in(folder)
    with running_cluster(settings) as bootstrap_servers:
        for name, limit in RECORDS.items():
            produce.produce(name, bootstrap_servers, limit=limit)
        with (
            running_dagster(settings, bootstrap_servers, port=0) as dagster,
            instance_of(dagster_home(settings)) as instance,
        ):
            yield Platform(settings, bootstrap_servers, dagster, instance, KafkaAdmin(KafkaOptions(bootstrap_servers)))


_SHARED: pytest.StashKey[Platform] = pytest.StashKey()


def shared(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Platform:
    """The session's platform: started for the first that asks, whichever folder its test is in, stopped at the session's end.

    The asking fixture stops it: what is left to a worker's own end may be cut off.
    """
    config = request.config
    if _SHARED not in config.stash:
        stack = ExitStack()
        request.addfinalizer(stack.close)
        config.stash[_SHARED] = stack.enter_context(running_platform(factory.mktemp("platform")))
    return config.stash[_SHARED]


def newest(events: list[dg.AssetMaterialization]) -> Mapping[str, str]:
    """The last data version of every window."""
    return {event.partition: (event.tags or {})["dagster/data_version"] for event in events if event.partition}
