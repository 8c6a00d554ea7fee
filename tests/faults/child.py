"""What a child process of the fault tests does: ingest, and kill or stop itself at a named point.

It says `fired` and the time just before the fault, `committed` after each commit, and a line of JSON with the result when it ends
by itself.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import consumers.processing.ingest as engine
from consumers.brokers.kafka import KafkaGroupMember
from consumers.brokers.options import KafkaOptions
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.errors import WeirError
from consumers.processing.context import Surroundings
from consumers.processing.ingest import stage_from
from consumers.processing.strategies.stage import writer
from consumers.staging.dead_letters import DeadLetterTable
from consumers.staging.log import StagedCommit
from consumers.staging.staged import StagedTable
from tests.faults.storage import StorageFault

Say = Callable[[str], None]

# What is wrapped, and whether the fault comes before or after the real call.
POINTS: dict[str, tuple[Any, str, str]] = {
    "after a poll": (KafkaGroupMember, "poll", "after"),
    "after a file is written": (writer, "write_file", "after"),
    "before the dead-letter commit": (DeadLetterTable, "append", "before"),
    "after the dead-letter commit": (DeadLetterTable, "append", "after"),
    "before the staged commit": (StagedTable, "commit", "before"),
    "after the staged commit": (StagedTable, "commit", "after"),
    "after the group commit": (KafkaGroupMember, "commit", "after"),
    "between the takeovers of the two tables": (DeadLetterTable, "acquire", "before"),
    "after the takeover": (DeadLetterTable, "acquire", "after"),
}


@dataclass(frozen=True)
class Order:
    """What a child does: which consumer (as JSON) from which cluster, and at which call of which point the fault comes.

    `group` is another group than the consumer's own, so that two processes are given the same partitions. `fault` is the
    signal: SIGKILL or SIGSTOP; with `again` it comes at every such call from then on. `storage` is how the storage misbehaves.
    """

    bootstrap: str
    consumer: str
    options: dict[str, str] = field(default_factory=dict)
    member: str = "child"
    group: str | None = None
    point: str | None = None
    call: int = 1
    fault: int = signal.SIGKILL
    again: bool = False
    storage: StorageFault | None = None
    poll_records: int = 200
    max_seconds: float = 60.0
    until_caught_up: bool = True


def arm(point: str, call: int, fault: int, say: Say, again: bool = False) -> None:
    """Wrap the point's function so that its `call`-th call sends this process the signal; with `again`, all that follow, too."""
    owner, name, side = POINTS[point]
    real = getattr(owner, name)
    counted = [0]

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if name == "commit" and owner is KafkaGroupMember:
            kwargs["wait"] = True  # or the process is gone before the request is sent
            args = args[:2]
        if side == "before" and _reached(counted, call, again):
            _strike(fault, say)
        found = real(*args, **kwargs)
        nothing = name == "poll" and found is None
        if side == "after" and not nothing and _reached(counted, call, again):
            _strike(fault, say)
        return found

    setattr(owner, name, wrapped)


def _reached(counted: list[int], call: int, again: bool) -> bool:
    counted[0] += 1
    return counted[0] == call or (again and counted[0] > call)


def _strike(fault: int, say: Say) -> None:
    _fired(say)()
    os.kill(os.getpid(), fault)


def _fired(say: Say) -> Callable[[], None]:
    return lambda: say(f"fired {SystemClock().time()}")


def run(order: Order, say: Say) -> int:
    """Ingest until caught up. Returns the exit code: 0, or 3 after an error of ours."""
    engine.POLL_RECORDS = order.poll_records
    if order.point is not None:
        arm(order.point, order.call, order.fault, say, order.again)
    if order.storage is not None:
        order.storage.install(_fired(say))
    consumer = Consumer.model_validate_json(order.consumer)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        result = _ingest(order, consumer, stop, say)
    except WeirError as error:
        say(json.dumps({"error": str(error), "kind": type(error).__name__}))
        return 3
    say(json.dumps(asdict(result)))
    return 0


def _ingest(order: Order, consumer: Consumer, stop: threading.Event, say: Say) -> engine.IngestResult:
    options = KafkaOptions(order.bootstrap, order.options)
    limits = engine.Limits(until_caught_up=order.until_caught_up, max_seconds=order.max_seconds)

    def told(_: StagedCommit) -> None:
        say("committed")

    if consumer.config.only_topic is None:
        return engine.ingest(
            consumer,
            options,
            member=order.member,
            stop=stop,
            until_caught_up=order.until_caught_up,
            max_seconds=order.max_seconds,
            on_commit=told,
        )
    broker = KafkaGroupMember(options, consumer.config.topic, order.group or consumer.group, order.member)
    return stage_from(broker, consumer, order.member, stop, limits, told, Surroundings())


def main(order: Order, ear: Connection, log: str) -> None:
    """A child's whole life. What it says goes to `ear`, what it logs to the file `log`."""
    errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(errors, 2)
    os.dup2(errors, 1)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {order.member} {order.point} %(message)s")
    sys.exit(run(order, ear.send))
