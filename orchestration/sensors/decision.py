"""What the sensor of a consumer decides. Pure: numbers in, run keys and a sentence out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FIRST_PAUSE_SECONDS = 15.0
LONGEST_PAUSE_SECONDS = 300.0
HANDOVER_SECONDS = 60.0
"""How long before a member leaves its successor is asked for at least, which needs some of that to start and to join."""
JOINED_SECONDS = 30.0
"""How long a member has worked when it is sure to read its share, so that another one may go for it."""
SLOW_SECONDS = 20.0
"""How long a run may be queued or starting before the tick says why."""

State = Literal["queued", "starting", "working", "ending"]


@dataclass(frozen=True, slots=True)
class Member:
    """A run that is not over. `seconds` ago it was queued or started; in `leaves_in` seconds it hands over, if that is known.

    `ours`: the sensor started it. `told`: it was told to leave. `outdated`: it would work for longer than the definition allows
    by now.
    """

    run: str
    state: State
    seconds: float
    leaves_in: float | None = None
    ours: bool = True
    told: bool = False
    outdated: bool = False

    @property
    def leaving(self) -> bool:
        """Whether it is about to hand over, so that somebody has to be there in its place."""
        return self.told or (self.leaves_in is not None and self.leaves_in <= 0)


@dataclass(frozen=True, slots=True)
class Work:
    """Whether members are to work now, and where they are not, why not."""

    due: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a tick saw.

    `failures` counts the runs that failed in a row without a commit. `paused` is the error that waits for a person. `blocked`
    says what queued runs wait for.
    """

    wanted: int
    members: tuple[Member, ...]
    work: Work
    lag: int
    version: int
    newest_run: str | None = None
    failures: int = 0
    seconds_since_failure: float = 0.0
    last_error: str = ""
    paused: str = ""
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The keys of the runs to ask for, why, the runs to tell to leave, and what to tell them."""

    run_keys: tuple[str, ...]
    reason: str
    leave: tuple[str, ...] = ()
    why: str = ""


def handover(max_run_seconds: float, slowest_start: float = 0.0) -> float:
    """How long before the end of a member's time its successor is asked for: twice what a start took lately, if that is long."""
    return min(max(HANDOVER_SECONDS, 2 * slowest_start), max_run_seconds / 2)


def pause(failures: int) -> float:
    """Seconds to wait after so many failures in a row: doubling, at most five minutes."""
    if failures <= 0:
        return 0.0
    return float(min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)))


def decide(consumer: str, facts: Facts) -> Decision:
    """Which members to start, and which to tell to leave.

    A member that is about to leave no longer counts: its successor works beside it until then, so that no partition is ever left
    alone. A run key says which run the new member comes after: that is what makes it new, however often the same positions are
    asked for, and a tick that is repeated after a crash asks for the same key.
    """
    state = _state(facts)
    staying = [member for member in facts.members if not member.leaving]
    if surplus := _surplus(staying, facts.wanted):
        return _told(state, surplus, f"{facts.wanted} are wanted")
    missing = facts.wanted - len(staying)
    if missing <= 0:
        late = _outdated(facts.members, facts.wanted)
        return _told(state, late, "max_run_seconds was lowered, and others work in their place") if late else Decision((), state)
    if why_not := _why_not(facts):
        return Decision((), f"{state}: {why_not}")
    after = facts.newest_run or "none"
    return Decision(tuple(f"{consumer}/after/{after}/{n}" for n in range(missing)), f"{state}: starting {missing}")


def _why_not(facts: Facts) -> str:
    """Why no member is started although some are missing; empty when nothing is in the way."""
    if facts.paused:
        return (
            "paused, because a run ended with what only a person can decide; what is committed is safe. Mend it, then switch "
            f"this sensor off and on again to go on. The error: {facts.paused}"
        )
    if not facts.work.due:
        return facts.work.why
    wait = pause(facts.failures) - facts.seconds_since_failure
    if facts.failures and wait > 0:
        return (
            f"{facts.failures} runs failed in a row without a commit, next try in {wait:.0f} s. "
            f"Last error: {facts.last_error or 'unknown'}"
        )
    return ""


def _surplus(staying: list[Member], wanted: int) -> tuple[str, ...]:
    """The sensor's own runs beyond what is wanted: those that have least to lose first."""
    order: dict[State, int] = {"queued": 0, "starting": 1, "working": 2, "ending": 3}
    ours = sorted((member for member in staying if member.ours), key=lambda member: (order[member.state], -member.seconds))
    return tuple(member.run for member in ours[: max(0, len(ours) - wanted)])


def _outdated(members: Sequence[Member], wanted: int) -> tuple[str, ...]:
    """The sensor's own runs that go on for longer than is allowed by now: those that others have come for, oldest first."""
    joined = sum(not member.leaving and member.state == "working" and member.seconds >= JOINED_SECONDS for member in members)
    late = [member for member in members if member.outdated and member.leaving and member.ours and not member.told]
    late.sort(key=lambda member: -member.seconds)
    return tuple(member.run for member in late[: max(0, joined + len(late) - wanted)])


def _told(state: str, leave: tuple[str, ...], why: str) -> Decision:
    return Decision((), f"{state}: {len(leave)} told to leave, {why}", leave, why)


def _state(facts: Facts) -> str:
    alive = f"{len(facts.members)} of {facts.wanted} members alive"
    parts = [alive, f"lag {facts.lag:,} records", f"committed version {facts.version}"]
    if leaving := sum(member.leaving for member in facts.members):
        parts.append(f"{leaving} handing over")
    for state, words in (("queued", facts.blocked), ("starting", "its process loads the definitions")):
        slow = [member.seconds for member in facts.members if member.state == state and member.seconds >= SLOW_SECONDS]
        if slow:
            parts.append(f"{len(slow)} {state} for {max(slow):.0f} s: {words}")
    return ", ".join(parts)
