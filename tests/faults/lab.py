"""Where a fault scenario takes place: a topic with a ledger, a consumer, children that ingest, and a watch over the offsets."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions
from consumers.clock import SystemClock
from consumers.config import Consumer
from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from tests.faults.child import Order
from tests.faults.kinds import Watch, judge, watch
from tests.faults.ledger import Ledger, consumer_in, new_topic, offsets_by_partition, produce
from tests.faults.process import Child, child
from tests.faults.scenario import Outcome

PARTITIONS = 3
# A member that comes back under its old name gets its partitions back at once, without waiting for the session to end.
STATIC = {"session.timeout.ms": "30000", "group.instance.id": "only"}
SHORT_SESSION = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500"}


class Lab:
    """One scenario's place. `pace` shortens the waits that a scenario makes on purpose: 1 is the full length.

    `home` is the folder of the cluster, for those that strike its brokers.
    """

    def __init__(
        self, bootstrap: str, folder: Path, seed: int, pace: float = 1.0, spark: bool = False, home: Path | None = None
    ) -> None:
        self.bootstrap, self.folder, self.pace, self.home = bootstrap, folder, pace, home
        self.chance = random.Random(seed)
        self.clock = SystemClock()
        self.ledger = Ledger()
        self.consumer: Consumer
        self.watch: Watch
        self.fired = 0
        self._spark = spark
        self._admin = KafkaAdmin(KafkaOptions(bootstrap))
        self._struck: list[float] = []
        self._took: list[float] = []
        self._first, self._last = 0, 0

    def set_up(
        self, batch: int, *, partitions: int = PARTITIONS, replicas: int = 1, tables: Path | None = None, **changes: Any
    ) -> None:
        """Make a topic and its consumer, which commits after every `batch` records."""
        topic = new_topic(self.bootstrap, partitions, replicas=replicas)
        limits = {"max_records": batch, "max_latency_seconds": 0.2}
        self.partitions = partitions
        self.consumer = consumer_in(tables or self.folder, topic, batch=limits, **changes)
        self.watch = watch(self.consumer, self._admin)

    def produce(self, count: int, **how: Any) -> None:
        """Produce records with new numbers, and enter them into the ledger."""
        seed = self.chance.randrange(2**32)
        self.ledger.acked += produce(
            self.bootstrap, self.consumer.config.topic, count, self.partitions, first=self.ledger.next, seed=seed, **how
        )

    def order(self, batch: int, **changes: Any) -> Order:
        """What a child is to do: by default, to come back as the one static member, and end when caught up."""
        asked = Order(self.bootstrap, self.consumer.model_dump_json(by_alias=True), options=STATIC, poll_records=batch)
        return replace(asked, **changes)

    @contextmanager
    def child(self, order: Order) -> Iterator[Child]:
        """A child that does not outlive the block. The faults that it tells of are counted when the block ends."""
        with child(order, self.folder / "children.log") as started:
            try:
                yield started
            finally:
                self._struck += [float(word.split()[1]) for word in started.said if word.startswith("fired")]

    def struck(self, seconds: float | None = None) -> None:
        """A fault was made from outside: now, or it is over already, and it took so many seconds to get on."""
        if seconds is None:
            self._struck.append(self.clock.time())
        else:
            self._took.append(seconds)

    @property
    def strikes(self) -> int:
        """How many faults there were until now."""
        return len(self._struck) + len(self._took)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """What is committed inside, moved under the fault; the faults inside are those that count."""
        self._first = self._version()
        yield
        self._last, self.fired = self._version(), self.strikes

    def staged_to_the_end(self) -> bool:
        """Whether everything acknowledged so far is passed by the positions."""
        ends = offsets_by_partition(self.ledger.acked)
        now = committed_positions(self.consumer.staged, self.consumer.name, self.consumer.config.topic, 64)
        found = {tp.partition: at for tp, at in now.items()}
        return all(found.get(partition, 0) >= end for partition, end in ends.items())

    def high(self) -> dict[int, int]:
        """Where each partition ends now, with what a reader of committed transactions skips."""
        return {tp.partition: marks.high for tp, marks in self._admin.watermarks(self.consumer.config.topic).items()}

    def until(self, condition: Callable[[], bool], seconds: float = 90.0) -> None:
        """Wait for something that must come."""
        deadline = self.clock.monotonic() + seconds
        while not condition():
            assert self.clock.monotonic() < deadline, f"not within {seconds:.0f} s"
            self.clock.sleep(0.1)

    def catch_up(self, batch: int, **changes: Any) -> None:
        """Stage the rest without any fault."""
        with self.child(self.order(batch, **changes)) as last:
            assert last.end(180) == 0, last.said[-3:]

    def outcome(self, asked: int, ends: dict[int, int] | None = None, each: int = 1) -> Outcome:
        """Judge everything, now that the faults are over and the rest is staged. `each` strikes make one fault."""
        reached = offsets_by_partition(self.ledger.acked) if ends is None else ends
        with dg.DagsterInstance.ephemeral() as instance:
            kinds = judge(self.consumer, self.ledger, reached, self.watch, instance, self._admin, self._spark)
        return Outcome(asked, self.fired // each, self._moved(), self._recovery(), kinds)

    def close(self) -> None:
        """Let go of the cluster."""
        self._admin.close()

    def _version(self) -> int:
        found = commits(self.consumer.staged)
        return found[-1].version if found else -1

    def _moved(self) -> int:
        log = commits(self.consumer.staged, self._first)
        return sum(commit.offsets for commit in log if commit.kind == "batch" and commit.version <= self._last)

    def _recovery(self) -> float:
        """The longest time from a fault to the first batch that was committed after it."""
        times = [c.committed_at_ms / 1000 for c in commits(self.consumer.staged) if c.kind == "batch"]
        waits = [min((at - struck for at in times if at >= struck), default=float("inf")) for struck in self._struck]
        return max(waits + self._took, default=0.0)
