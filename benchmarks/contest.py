"""One contestant's run: its processes, its figures, what others did to the machine meanwhile, and whether its table is right."""

import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable

from benchmarks.contestants import Contestant
from benchmarks.environments import Prepared
from benchmarks.machine import Noise, Watch
from benchmarks.peers.task import READY, Task
from benchmarks.topic import Rows
from consumers.brokers.options import KafkaOptions
from consumers.membership import GroupSettings
from orchestration.settings import PROJECT

_PATIENCE_SECONDS = 3600.0


@dataclass(frozen=True)
class Topic:
    """A filled topic: its variant, its records and what a table of them has."""

    name: str
    variant: str
    records: int
    bytes_each: float
    rows: Rows


@dataclass(frozen=True)
class Figures:
    """Of one run: records a second, CPU seconds a million records, the most memory in MB, and the noise beside it."""

    rate: float
    cpu: float
    peak_mb: float
    note: str
    noise: Noise


class Wrong(Exception):
    """A contestant failed, or wrote what it should not have."""


def client_settings(bootstrap_servers: str) -> dict[str, Any]:
    """The librdkafka settings that we have, for everybody."""
    ours = KafkaOptions(bootstrap_servers).member("", "bench", GroupSettings())
    left_out = ("group.id", "auto.offset.reset", "enable.auto.offset.store", "enable.partition.eof")
    return {name: value for name, value in ours.items() if name not in left_out}


def run(contestant: Contestant, how: Prepared, bootstrap_servers: str, topic: Topic) -> Figures:
    """Raises Wrong."""
    watch = Watch(bootstrap_servers)
    with tempfile.TemporaryDirectory() as folder:
        task = Task(
            bootstrap_servers,
            topic.name,
            topic.records,
            Path(folder),
            f"bench-{uuid.uuid4()}",
            client_settings(bootstrap_servers),
            how.jars,
            os.cpu_count() or 1,
            topic.variant,
        )
        with _members(contestant, how, task) as members:
            answers = [_answer(contestant, member, Path(folder)) for member in members]
        noise = watch.noise()
        if (records := sum(answer["records"] for answer in answers)) != topic.records:
            raise Wrong(f"{contestant.title} read {records:,} of {topic.records:,} records")
        if answers[0]["table"] is not None:
            _check(contestant, Path(answers[0]["table"]), topic.rows)
    working = [answer for answer in answers if answer["records"]]
    seconds = max(answer["ended"] for answer in working) - min(answer["began"] for answer in working)
    return Figures(
        rate=records / seconds,
        cpu=sum(answer["cpu_seconds"] for answer in answers) / records * 1e6,
        peak_mb=sum(answer["peak_mb"] for answer in answers),
        note=answers[0]["note"],
        noise=noise,
    )


@contextmanager
def _members(contestant: Contestant, how: Prepared, task: Task) -> Iterator[list[subprocess.Popen[str]]]:
    """Its processes, once all are ready and told to begin; none is left behind."""
    command = [str(how.python), "-m", contestant.module, task.line()]
    members = []
    try:
        for number in range(contestant.members):
            with (task.folder / f"{number}.log").open("w") as log:
                pipe = subprocess.PIPE
                around = {**os.environ, **how.variables}
                members.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, cwd=PROJECT, env=around))
        for member in members:
            assert member.stdout is not None
            while (line := member.stdout.readline()) and line.strip() != READY:
                pass
        for member in members:
            assert member.stdin is not None
            if member.poll() is None:
                member.stdin.write("\n")
                member.stdin.flush()
        yield members
    finally:
        for member in members:
            member.kill()
            member.wait()


def _answer(contestant: Contestant, member: "subprocess.Popen[str]", folder: Path) -> dict[str, Any]:
    told, _ = member.communicate(timeout=_PATIENCE_SECONDS)
    if member.returncode:
        logs = "".join(log.read_text()[-3000:] for log in sorted(folder.glob("*.log")))
        raise Wrong(f"{contestant.title} failed:\n{logs}")
    answer: dict[str, Any] = json.loads(told.splitlines()[-1])
    return answer


def _check(contestant: Contestant, table: Path, expected: Rows) -> None:
    """That the Delta table has the rows that it should have, once each."""
    found = DeltaTable(table).to_pyarrow_table(columns=["id", "amount_cents"])
    ids = found["id"].to_numpy()
    rows = Rows.of(ids, found["amount_cents"].to_numpy())
    if rows != expected or len(np.unique(ids)) != len(ids):
        raise Wrong(f"{contestant.title} committed {rows}, {len(np.unique(ids)):,} different ids, instead of {expected}")
