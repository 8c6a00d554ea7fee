"""The embedded Kafka cluster: real Apache Kafka on loopback, started, stopped and looked at by commands.

It outlives the command that started it. Its state is under `<home>/kafka` and survives any process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from consumers.clock import Clock, SystemClock
from orchestration.local import jars, probe, process, server, state
from orchestration.local.errors import LocalError
from orchestration.local.files import locked, require_free_space
from orchestration.local.java import java
from orchestration.local.state import Broker, Cluster
from orchestration.settings import Settings

READY_SECONDS = 120.0
_NEEDED_BYTES = 2**30


@dataclass(frozen=True)
class Up:
    """What `up` did: the address to use, and the ids of the brokers that it started (none when all ran
    already).

    `external` means that KAFKA_BOOTSTRAP_SERVERS names a cluster and nothing was started.
    """

    bootstrap_servers: str
    started: tuple[int, ...]
    external: bool
    seconds: float


@dataclass(frozen=True)
class BrokerStatus:
    """One broker as found: `pid` is None when it does not run."""

    id: int
    address: str
    pid: int | None
    folder: Path


@dataclass(frozen=True)
class Status:
    """`usable` says whether a client gets an answer at `bootstrap_servers` (None: no cluster)."""

    bootstrap_servers: str | None
    external: bool
    usable: bool
    brokers: tuple[BrokerStatus, ...]


def up(settings: Settings, brokers: int | None = None, port: int | None = None, clock: Clock | None = None) -> Up:
    """Have a usable cluster: start what does not run, on the data that is there, and wait until a client can
    produce.

    `brokers` is 1 or 3 (default: as many as there are, else 1). `port` is the first broker's (default: the
    one it had, else 9092), the next ones follow; 0 takes any free ones. Raises LocalError with what to do
    when that is not possible.
    """
    clock = clock or SystemClock()
    began = clock.monotonic()
    if settings.bootstrap_servers:
        return Up(settings.bootstrap_servers, (), True, 0.0)
    folder = _folder(settings)
    with locked(folder / "lock"):
        cluster = _chosen(folder, brokers)
        running = _running(cluster)
        started: tuple[int, ...] = ()
        if len(running) < len(cluster.brokers):
            cluster, started = _start(settings, cluster, running, port)
        elif port and port != cluster.brokers[0].port:
            raise LocalError(
                f"the cluster runs on port {cluster.brokers[0].port} already: `weir kafka down` first, to move it to {port}"
            )
        _wait(cluster, clock)
    return Up(cluster.bootstrap_servers, started, False, clock.monotonic() - began)


def down(settings: Settings, clock: Clock | None = None, seconds: float = process.TERM_SECONDS) -> tuple[int, ...]:
    """Stop the brokers of the embedded cluster, all at once and in order; data and logs stay.

    Those that need more than `seconds` are killed. Returns the ids of those that ran.
    """
    folder = _folder(settings)
    with locked(folder / "lock"):
        cluster = state.load(folder)
        running = _running(cluster) if cluster else {}
        process.stop(list(running.values()), clock or SystemClock(), seconds)
        for pid in folder.glob("broker-*/pid"):
            pid.unlink()
    return tuple(running)


def status(settings: Settings) -> Status:
    """What there is and whether it answers. Waits three seconds at most for an answer."""
    if settings.bootstrap_servers:
        return Status(settings.bootstrap_servers, True, probe.answers(settings.bootstrap_servers, settings.kafka), ())
    cluster = state.load(_folder(settings))
    if cluster is None:
        return Status(None, False, False, ())
    running = _running(cluster)
    found = tuple(
        BrokerStatus(b.id, b.address, running[b.id].pid if b.id in running else None, cluster.broker_folder(b))
        for b in cluster.brokers
    )
    usable = bool(running) and probe.answers(cluster.bootstrap_servers, {})
    return Status(cluster.bootstrap_servers, False, usable, found)


def bootstrap_servers(settings: Settings) -> str:
    """The cluster to use: KAFKA_BOOTSTRAP_SERVERS, else the embedded one while it runs.

    Raises LocalError when neither.
    """
    if settings.bootstrap_servers:
        return settings.bootstrap_servers
    cluster = state.load(_folder(settings))
    if cluster is None or not _running(cluster):
        raise LocalError("no Kafka cluster runs: start one with `weir kafka up`, or name yours in KAFKA_BOOTSTRAP_SERVERS")
    return cluster.bootstrap_servers


@contextmanager
def running_cluster(
    settings: Settings, brokers: int | None = None, port: int = 0, stop_seconds: float = process.TERM_SECONDS
) -> Iterator[str]:
    """A usable cluster's address; it is stopped at the end, and killed where that takes more than `stop_seconds`."""
    try:
        yield up(settings, brokers, port).bootstrap_servers
    finally:
        down(settings, seconds=stop_seconds)


def _folder(settings: Settings) -> Path:
    return settings.home / "kafka"


def _chosen(folder: Path, brokers: int | None) -> Cluster:
    """The recorded cluster, or a new one. Raises LocalError when the record has another number of brokers."""
    if brokers not in (None, 1, 3):
        raise LocalError(f"a cluster has 1 or 3 brokers, not {brokers}")
    cluster = state.load(folder)
    if cluster is None:
        if any(folder.glob("broker-*/data")):
            raise LocalError(
                f"{folder} holds a cluster's data but cluster.json is gone from it: restore that file, "
                "or stop its brokers "
                "if any run and delete the folder to start with an empty cluster"
            )
        return state.new_cluster(folder, brokers or 1)
    if brokers is not None and brokers != len(cluster.brokers):
        raise LocalError(
            f"the cluster in {folder} has {len(cluster.brokers)} broker(s), not {brokers}: "
            "leave out --brokers to use its data, "
            "or run `weir kafka down`, delete that folder and start anew"
        )
    return cluster


def _running(cluster: Cluster) -> dict[int, psutil.Process]:
    """The processes by broker id."""
    found = {broker.id: process.find(cluster.broker_folder(broker)) for broker in cluster.brokers}
    return {number: one for number, one in found.items() if one is not None}


def _start(
    settings: Settings, cluster: Cluster, running: dict[int, psutil.Process], port: int | None
) -> tuple[Cluster, tuple[int, ...]]:
    """Start the brokers that do not run; the cluster with its ports and the ids of those started."""
    require_free_space(cluster.folder, _NEEDED_BYTES)
    executable = java(settings)
    folders = [
        jars.fetch(settings, "Kafka", jars.KAFKA),
        jars.fetch(settings, "Kafka's logging", jars.KAFKA_LOGGING),
    ]
    classpath = ":".join(f"{folder}/*" for folder in folders)
    if not running:  # ports move only as one: whoever still runs knows the others by theirs
        cluster = state.with_ports(cluster, port)
    state.save(cluster)
    missing = [broker for broker in cluster.brokers if broker.id not in running]
    for broker in missing:
        server.configure(cluster, broker)
    server.format_data(executable, classpath, cluster)
    for broker in missing:
        process.start(server.command(executable, classpath, cluster, broker), cluster.broker_folder(broker))
    return cluster, tuple(broker.id for broker in missing)


def _wait(cluster: Cluster, clock: Clock) -> None:
    """Return when the cluster is usable; raise LocalError when a broker ended or the time is over."""
    processes = _running(cluster)

    def still_alive() -> None:
        for broker in cluster.brokers:
            one = processes.get(broker.id)
            if one is None or not process.alive(one):
                raise LocalError(_why(cluster, broker))

    if not probe.wait_until_usable(cluster, clock, READY_SECONDS, still_alive):
        raise LocalError(
            f"Kafka runs but took no record within {READY_SECONDS:.0f} s; its data is safe: see "
            f"{cluster.folder}/broker-*/logs/kafka.log, then `weir kafka down` and `weir kafka up`"
        )


def _why(cluster: Cluster, broker: Broker) -> str:
    """One line about a broker that ended, with the last error that it logged."""
    logs = cluster.broker_folder(broker) / "logs"
    said = last_error((logs / "kafka.log", logs / "console.log"))
    return (
        f"broker {broker.id} ended while starting: {said or 'it logged no error'}; "
        f"its data is untouched in {logs.parent}; see {logs}/kafka.log"
    )


def last_error(logs: tuple[Path, ...]) -> str:
    """The last error in the first of these logs that has one: its exception's line where there is one, else
    its own.
    """
    for log in logs:
        lines = log.read_text(errors="replace").splitlines()[-1000:] if log.exists() else []
        for number in range(len(lines) - 1, -1, -1):
            if " ERROR " in lines[number] or "FATAL" in lines[number]:
                after = lines[number + 1] if number + 1 < len(lines) else ""
                return (after if "Exception: " in after or "Error: " in after else lines[number]).strip()[:300]
    return ""
