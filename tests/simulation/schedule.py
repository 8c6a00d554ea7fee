"""A schedule is data: a setup and a list of actions, both made from a seed, so that it can be replayed and cut down.

Actions name members by a number that is taken modulo those that can do it, so each makes sense without the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple

from consumers.membership import GroupSettings

Protocol = Literal["eager", "cooperative", "consumer"]
Pipeline = Literal["database", "transactions", "chain"]


class Action(NamedTuple):
    """What happens next: a method of `Simulation`, and what it is told."""

    kind: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(map(str, self.args))}".strip()


@dataclass(frozen=True, slots=True)
class Setup:
    """What stays the same during a schedule. `calm` is one in which nothing fails: members only come and go in good order."""

    seed: int
    pipeline: Pipeline
    protocol: Protocol
    static: bool
    partitions: int
    members: int
    poll_records: int
    batch_records: int
    latency_seconds: float
    revoke_seconds: float
    compact: bool
    shape: int
    calm: bool
    room: int

    @property
    def session_seconds(self) -> float:
        """After which a silent member is out; brokers decide it where they decide everything."""
        return 45.0 if self.protocol == "consumer" else 10.0

    def membership(self, instance: str | None) -> GroupSettings:
        """Of one member."""
        session = None if self.protocol == "consumer" else self.session_seconds
        return GroupSettings(protocol=self.protocol, instance_id=instance, session_seconds=session, max_poll_seconds=60.0)


def setup_of(seed: int, pipeline: Pipeline | None = None) -> Setup:
    """The setup of a seed."""
    random = Random(f"setup {seed}")
    chosen: Pipeline = random.choice(("database", "transactions", "chain"))
    return Setup(
        seed=seed,
        pipeline=pipeline or chosen,
        protocol=random.choice(("eager", "cooperative", "cooperative", "consumer")),
        static=random.random() < 0.2,
        partitions=random.randint(2, 4),
        members=random.randint(2, 4),
        poll_records=random.choice((3, 8, 20)),
        batch_records=random.choice((1, 6, 15, 40)),
        latency_seconds=random.choice((0.0, 0.5, 2.0, 8.0)),
        revoke_seconds=random.choice((0.0, 0.0, 1.0, 30.0)),
        compact=random.random() < 0.15,
        shape=random.randrange(1_000),
        calm=random.random() < 0.15,
        room=random.choice((3, 10, 40)),
    )


CALM = {"write": 14, "open": 3, "settle": 3, "all": 16, "step": 14, "wait": 6, "join": 4, "leave": 3, "rebalance": 2, "grow": 1}
NASTY = CALM | {
    "arm_kill": 5,
    "arm_freeze": 5,
    "die": 2,
    "freeze": 3,
    "thaw": 4,
    "zombie": 3,
    "expel": 2,
    "fault": 7,
    "database_fault": 7,
    "squeeze": 2,
    "retain": 2,
    "compact": 1,
}


def actions_of(setup: Setup) -> list[Action]:
    """The actions of a setup's seed."""
    random = Random(f"actions {setup.seed}")
    weights = dict(CALM if setup.calm else NASTY)
    if random.random() < 0.1 and not setup.calm and setup.pipeline == "database":
        weights["create_anew"] = 1
    first = [Action("write", (p, random.randint(2, 10), random.random())) for p in range(setup.partitions)]
    first += [Action("join") for _ in range(random.randint(1, setup.members))]
    return first + [_action(random, weights, setup, 0) for _ in range(random.randint(20, 60))]


def _action(random: Random, weights: dict[str, int], setup: Setup, depth: int) -> Action:
    kind = random.choices(list(weights), list(weights.values()))[0]
    who = random.randrange(12)
    if kind in ("arm_freeze", "zombie"):
        return Action(kind, (who, random.randint(1, 40), _meanwhile(random, weights, setup, depth)))
    return Action(kind, _ARGS[kind](random, who, setup) if kind in _ARGS else (who,))


_FAULTS = (
    "poll", "commit", "watermarks", "group_offsets", "partitions", "topic_id", "begin", "send_offsets", "commit_transaction",
    "abort_transaction", *("produce",) * 6,
)  # fmt: skip
_HOW = ("fail", "fail", "lose", "delay", "fatal")
_DATABASE_FAULTS = ("execute", "commit", "commit", "answer to commit", "answer to execute")


def _broken_calls(random: Random, who: int, setup: Setup) -> tuple[Any, ...]:
    which = random.choice(_DATABASE_FAULTS)
    return who, tuple(random.choice((which, "commit")) for _ in range(random.choice((1, 2, 4, 9))))


def _pause(random: Random, who: int, setup: Setup) -> tuple[Any, ...]:
    long = random.random() < 0.2 and not setup.calm
    return (_seconds(random, setup) + (setup.session_seconds if long else 0.0),)


_ARGS: dict[str, Callable[[Random, int, Setup], tuple[Any, ...]]] = {
    "write": lambda random, who, setup: (who, random.randint(1, 8), random.random()),
    "open": lambda random, who, setup: (random.randrange(2), (who, random.randrange(4)), random.randint(1, 4), random.random()),
    "settle": lambda random, who, setup: (random.randrange(2), random.random() < 0.6),
    "all": lambda random, who, setup: (random.randint(1, 4), _seconds(random, setup)),
    "step": lambda random, who, setup: (who, random.randint(1, 5), _seconds(random, setup)),
    "wait": _pause,
    "arm_kill": lambda random, who, setup: (who, random.randint(1, 40)),
    "expel": lambda random, who, setup: (who, random.choice((0, 1, 3, 8))),
    "fault": lambda random, who, setup: (random.choice(_FAULTS), random.choice(_HOW), random.choice((1, 2, 5, 150))),
    "database_fault": _broken_calls,
    "squeeze": lambda random, who, setup: (who, random.randint(5, 120), random.random()),
    "retain": lambda random, who, setup: (who, random.choice((0.3, 0.7, 1.0))),
}
"""What an action is told, where that is more than the number of a member."""


def _meanwhile(random: Random, weights: dict[str, int], setup: Setup, depth: int) -> tuple[Action, ...]:
    """What the others do while a member is stopped: often enough to take its partitions over."""
    if depth >= 2:
        return ()
    pause = setup.session_seconds + 1 if random.random() < 0.7 else random.random()
    others = [_action(random, weights, setup, depth + 1) for _ in range(random.randint(0, 3))]
    return (Action("wait", (pause,)), Action("all", (random.randint(1, 6), 0.3)), *others, Action("all", (2, 2.5)))


def _seconds(random: Random, setup: Setup) -> float:
    """Not long where nothing is to fail: who is not given a turn for long fails."""
    return random.choice((0.0, 0.05, 0.3) if setup.calm else (0.0, 0.05, 0.3, 1.0, 3.0))
