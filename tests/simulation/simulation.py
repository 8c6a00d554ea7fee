"""Runs a schedule: a cluster, a clock, members that are stepped by hand, and everything that can happen to them."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from consumers.brokers.memory import MemoryCluster, MemoryConsumer
from consumers.clock import ManualClock
from consumers.errors import BrokerError, FatalError, StorageError
from consumers.processing.context import Surroundings
from consumers.processing.processor import Processor
from consumers.processing.subscription import Subscription
from consumers.types import TopicPartition
from tests.simulation.crossings import Crossings, Watched
from tests.simulation.members import Member, Told
from tests.simulation.oracle import judge
from tests.simulation.pipelines import GROUP, Parts, pipeline_of
from tests.simulation.schedule import Action, Pipeline, Setup, actions_of, setup_of
from tests.simulation.source import TOPIC, Source

_TOLD = frozenset({"commit", "seek", "pause", "resume", "send_offsets", "begin", "commit_transaction", "abort_transaction"})
_ROUNDS = 50
_MOST_MEMBERS = 12
_CONTESTED = ("another process keeps writing", "could not take")


@dataclass
class Outcome:
    """What a schedule led to. `trace` says step by step what happened."""

    setup: Setup
    actions: Sequence[Action]
    findings: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


def simulate(seed: int, pipeline: Pipeline | None = None) -> Outcome:
    """The schedule of a seed, for the pipeline that it chooses or for this one."""
    setup = setup_of(seed, pipeline)
    return run(setup, actions_of(setup))


def run(setup: Setup, actions: Sequence[Action]) -> Outcome:
    """Do the actions, then heal everything, let it run to its end, and judge."""
    simulation = Simulation(setup, actions)
    simulation.go()
    return simulation.outcome


def digest(seeds: Iterable[int]) -> str:
    """All that happens with some seeds, as one hash."""
    traces = "\n".join(line for seed in seeds for line in simulate(seed).trace)
    return hashlib.sha256(traces.encode()).hexdigest()


class Simulation:
    """The world of one schedule. Its public methods are the kinds of actions."""

    def __init__(self, setup: Setup, actions: Sequence[Action]) -> None:
        self.outcome = Outcome(setup, actions)
        self._setup = setup
        self._clock = ManualClock(1_000.0)
        self._cluster = MemoryCluster(self._clock)
        self._source = Source(self._cluster, setup.partitions, setup.compact, filters=setup.pipeline == "chain")
        self._pipeline = pipeline_of(self._cluster, setup)
        self._members: list[Member] = []
        self._parts: dict[str, Parts] = {}
        self._durable: dict[int, int] = {}
        self._group: dict[int, int] = {}
        self._depth = 0

    def go(self) -> None:
        for action in self.outcome.actions:
            self._act(action)
        if not self.outcome.findings:
            self._heal()
        if not self.outcome.findings:
            self._judge()

    def write(self, partition: int, count: int, chance: float) -> None:
        """Records that need no transaction."""
        self._source.write(partition % len(self._source.partitions), count, Random(chance))

    def open(self, name: int, partitions: Sequence[int], count: int, chance: float) -> None:
        """Records of a transaction that stays open."""
        chosen = sorted({p % len(self._source.partitions) for p in partitions})
        self._source.write_in_transaction(name, chosen, count, Random(chance))

    def settle(self, name: int, commit: bool) -> None:
        """The end of such a transaction."""
        self._source.end_transaction(name, commit)

    def retain(self, partition: int, share: float) -> None:
        """Retention takes the beginning of a partition."""
        tp = self._source.partitions[partition % len(self._source.partitions)]
        start = self._source.retain(tp, share, tp.partition in self._durable)
        self._failed(f"retention up to {start} of {tp.partition}")

    def compact(self, _who: int) -> None:
        """Compaction takes what newer records replace."""
        if self._source.compact():
            self._note("", "compacted")

    def create_anew(self, _who: int) -> None:
        """The topic is deleted and made again."""
        self._source.create_anew(self._durable)
        self._durable.clear()
        self._group.clear()
        self._failed("topic created anew")

    def grow(self, _who: int) -> None:
        """One partition more."""
        if len(self._source.partitions) < 6:
            self._cluster.add_partitions(TOPIC, len(self._source.partitions) + 1)

    def join(self, _who: int = 0) -> None:
        """A new process, or one in the place of a static member that is gone."""
        if sum(member.alive for member in self._members) >= self._setup.members or len(self._members) >= _MOST_MEMBERS:
            return
        self._start()

    def leave(self, who: int) -> None:
        """A member ends in good order."""
        if member := self._pick(who):
            self._ended(member, member.leave())

    def step(self, who: int, times: int, seconds: float) -> None:
        """Some turns of a member's loop."""
        for _ in range(times):
            if member := self._pick(who):
                self._turn(member)
            self._clock.advance(seconds)

    def all(self, rounds: int, seconds: float) -> None:
        """Turns of everybody."""
        for _ in range(rounds):
            for member in list(self._members):
                self._turn(member)
            self._clock.advance(seconds)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self._clock.advance(seconds)

    def rebalance(self, _who: int) -> None:
        """The group deals its partitions out anew."""
        self._cluster.rebalance(GROUP)

    def arm_kill(self, who: int, after: int) -> None:
        """A member will die at its n-th crossing from now."""
        if member := self._pick(who):
            member.crossings.order(after, "dies", lambda: self._kill(member))

    def arm_freeze(self, who: int, after: int, meanwhile: Sequence[Action]) -> None:
        """A member will be stopped at its n-th crossing from now, while others go on; then it does, where it was."""
        if member := self._pick(who):
            member.crossings.order(after, "is stopped", lambda: self._stop(member, meanwhile))

    def die(self, who: int) -> None:
        """A member dies between two turns."""
        if member := self._pick(who):
            self._failed(f"{member.name} dies")
            member.die()

    def freeze(self, who: int) -> None:
        """A member is stopped between two turns."""
        if member := self._pick(who):
            self._failed(f"{member.name} is stopped")
            member.freeze()

    def thaw(self, who: int) -> None:
        """A member that was stopped goes on."""
        frozen = [member for member in self._members if member.alive and member.frozen]
        if frozen:
            frozen[who % len(frozen)].frozen = False

    def zombie(self, who: int, _after: int, meanwhile: Sequence[Action]) -> None:
        """A member is stopped between two turns while others go on; then it does."""
        member = self._pick(who)
        if member and self._depth < 2:
            self._failed(f"{member.name} is stopped")
            member.freeze()
            self._nested(meanwhile)
            member.frozen = False
            self._turn(member)

    def expel(self, who: int, unaware: int) -> None:
        """The group puts a member out, which finds out later."""
        if member := self._pick(who):
            self._failed(f"{member.name} is put out")
            member.consumer.expel(unaware)

    def fault(self, call: str, how: str, times: int) -> None:
        """Calls of members to the cluster fail, or take long."""
        faults, client = self._cluster.faults, None
        self._failed(f"{call}: {how} {times}")
        for member in self._members:
            if not member.alive:
                continue
            client = member.consumer.client_id
            if how == "delay":
                faults.delay(call, 2.0, min(times, 3), client=client)
            elif how == "lose":
                faults.lose_acknowledgement(call, min(times, 3), client=client)
            else:
                faults.fail(call, 1 if how == "fatal" else times, fatal=how == "fatal", client=client)

    def database_fault(self, who: int, fails: Sequence[str]) -> None:
        """Statements and commits of a member fail, before or after their effect."""
        if (member := self._pick(who)) and (door := self._parts[member.name].door):
            self._failed(f"database of {member.name}")
            door.fails.extend(fails)

    def squeeze(self, who: int, times: int, chance: float) -> None:
        """Nothing can be written for a while; much comes in, and just then the group deals its partitions out anew."""
        self._failed("nothing can be written")
        for member in self._members:
            if member.able:
                self._cluster.faults.fail("produce", times, client=member.name)
                if door := self._parts[member.name].door:
                    door.fails.extend(["commit"] * (times // 20))
        for tp in self._source.partitions:
            self.write(tp.partition, 4, chance)
        self.all(7, 0.1)
        if who % 2:
            self.join()
        else:
            self.rebalance(who)
        self.all(4, 0.1)

    def _act(self, action: Action) -> None:
        if self.outcome.findings:
            return
        self._note("*", str(action))
        getattr(self, action.kind)(*action.args)
        self._watch()

    def _nested(self, actions: Sequence[Action]) -> None:
        self._depth += 1
        for action in actions:
            self._act(action)
        self._depth -= 1

    def _start(self) -> None:
        name = f"m{len(self._members) + 1}"
        crossings = Crossings(lambda text: self._note(name, text))
        instance = self._free_instance() if self._setup.static else None
        consumer = MemoryConsumer(self._cluster, TOPIC, GROUP, name, settings=self._setup.membership(instance))
        broker = Watched(consumer, crossings, _TOLD)
        around = Surroundings(self._clock, random=Random(f"{self._setup.seed} {name}"))
        parts = self._parts[name] = self._pipeline.parts(name, broker, crossings, around)
        subscription = Subscription(
            "c",
            TOPIC,
            on_data_loss="record",
            poll_records=self._setup.poll_records,
            revoke_seconds=self._setup.revoke_seconds,
        )
        gone = parts.door.hang_up if parts.door else lambda: None
        processor = Processor(subscription, broker, parts.store, parts.build, around)
        self._members.append(Member(name, consumer, processor, crossings, instance, gone=gone))
        consumer.subscribe(Told(processor, crossings))

    def _free_instance(self) -> str:
        taken = {member.instance for member in self._members if member.alive}
        return next(f"i{n}" for n in itertools.count() if f"i{n}" not in taken)

    def _pick(self, who: int) -> Member | None:
        able = [member for member in self._members if member.able]
        return able[who % len(able)] if able else None

    def _turn(self, member: Member) -> None:
        if member.able:
            self._ended(member, member.step())
            self._watch()

    def _ended(self, member: Member, error: Exception | None) -> None:
        if error is not None and not self._expected(error):
            self._find(f"crashed: {member.name} ended with {type(error).__name__}: {error}")

    def _expected(self, error: Exception) -> bool:
        """Whether a run may end so, after what had failed."""
        if self._setup.calm or not isinstance(error, FatalError):
            return False
        return isinstance(error, BrokerError | StorageError) or any(text in str(error) for text in _CONTESTED)

    def _kill(self, member: Member) -> None:
        self._failed(f"{member.name} dies")
        member.crossings.kill()

    def _stop(self, member: Member, meanwhile: Sequence[Action]) -> None:
        self._failed(f"{member.name} is stopped")
        if self._depth < 2:
            member.consumer.freeze()
            self._nested(meanwhile)

    def _failed(self, what: str) -> None:
        """For the trace: from here on things go wrong."""
        self._note("!", what)

    def _watch(self) -> None:
        """Nothing that is durable goes back, and the group is never ahead of it."""
        durable = self._pipeline.durable()
        group = {tp.partition: offset for tp, offset in self._cluster.group(GROUP).offsets.items()}
        if durable is None or (durable == self._durable and group == self._group):
            return
        self._note("=", f"durable {_numbers(durable)}, group {_numbers(group)}")
        for partition, offset in sorted(durable.items()):
            before = self._durable.get(partition, 0)
            if offset < before:
                self._find(f"back: partition {partition} stood at {before}, and stands at {offset}")
            elif offset > before and (missing := self._missing(partition, before, offset)):
                self._find(f"ahead: partition {partition} went from {before} to {offset}, without {missing}")
        for partition, offset in sorted(group.items()):
            if offset > durable.get(partition, 0) and not self._source.life:
                self._find(f"ahead: the group stands at {offset} of {partition}, durable is {durable.get(partition)}")
        self._durable, self._group = durable, group

    def _missing(self, partition: int, before: int, after: int) -> list[str]:
        """What did not come out, although positions passed it."""
        output = self._pipeline.output()
        there = {seen.uid for seen in (*output.rows, *output.letters)}
        return [
            record.uid
            for record in self._source.produced.values()
            if (record.partition, record.life) == (partition, self._source.life) and before <= record.offset < after
            and record.visible and not record.gone and record.kind != "dropped" and record.uid not in there
        ]  # fmt: skip

    def _heal(self) -> None:
        """Nothing fails any more; everybody goes on; whoever ends is started again."""
        self._note("*", "healed")
        self._cluster.faults.clear()
        self._source.settle()
        if self._source.life:
            # That a topic is another one is noticed by reading from it.
            for tp in self._source.partitions:
                self.write(tp.partition, 1, 0.5)
        for member in self._members:
            member.frozen = False
            member.crossings.disarm()
            if door := self._parts[member.name].door:
                door.fails.clear()
        most = _ROUNDS + sum(end - self._durable.get(partition, 0) for partition, end in self._ends().items())
        for turn in range(most):
            if not any(member.alive for member in self._members):
                self._start()
            self.all(1, 0.3 if turn < 5 else 5.0)
            if self.outcome.findings or self._done():
                return
        self._find(
            f"stuck: after {most} turns it stands at {_numbers(self._durable)}, the topic ends at {_numbers(self._ends())}"
        )

    def _ends(self) -> dict[int, int]:
        return {tp.partition: self._cluster.watermarks(tp, True).high for tp in self._source.partitions}

    def _done(self) -> bool:
        """Everything is durable, and the group knows."""
        self._watch()
        group = self._cluster.group(GROUP).offsets
        return all(
            self._durable.get(partition, 0) == end == group.get(TopicPartition(TOPIC, partition), 0)
            for partition, end in self._ends().items()
        )

    def _judge(self) -> None:
        for finding in judge(self._source.produced.values(), self._pipeline.output(), self._pipeline.promise):
            self._find(finding)

    def _find(self, what: str) -> None:
        self.outcome.findings.append(what)
        self._note("?", what)

    def _note(self, who: str, text: str) -> None:
        self.outcome.trace.append(f"{self._clock.monotonic():9.2f} {'  ' * self._depth}{who:>3} {text}")


def _numbers(positions: dict[int, int]) -> str:
    return " ".join(f"{p}:{positions[p]}" for p in sorted(positions))
