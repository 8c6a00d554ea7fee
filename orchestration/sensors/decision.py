"""What the sensor of a consumer decides. Pure: numbers in, run keys and a sentence out."""

from dataclasses import dataclass
from typing import Literal

FIRST_PAUSE_SECONDS = 15.0
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True)
class Facts:
    """What a tick saw. `alive` counts runs that are queued or running, `failures` those that failed in a row without a commit."""

    wanted: int
    mode: Literal["continuous", "scheduled", "on_lag"]
    alive: int
    lag: int
    version: int
    newest_run: str | None = None
    failures: int = 0
    seconds_since_failure: float = 0.0
    last_error: str = ""


@dataclass(frozen=True)
class Decision:
    """The keys of the runs to ask for, and why."""

    run_keys: tuple[str, ...]
    reason: str


def pause(failures: int) -> float:
    """Seconds to wait after so many failures in a row: doubling, at most five minutes."""
    if failures <= 0:
        return 0.0
    return float(min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)))


def decide(consumer: str, facts: Facts) -> Decision:
    """Which members to start.

    A run key says which run the new member comes after: that is what makes it new, however often the same positions are
    asked for, and a tick that is repeated after a crash asks for the same key.
    """
    state = f"{facts.alive} of {facts.wanted} members alive, lag {facts.lag:,} records, committed version {facts.version}"
    missing = facts.wanted - facts.alive
    if missing <= 0:
        return Decision((), state)
    if facts.mode == "on_lag" and facts.lag <= 0:
        return Decision((), f"{state}: nothing to read")
    wait = pause(facts.failures) - facts.seconds_since_failure
    if facts.failures and wait > 0:
        return Decision(
            (),
            f"{state}: {facts.failures} runs failed in a row without a commit, next try in {wait:.0f} s. "
            f"Last error: {facts.last_error or 'unknown'}",
        )
    after = facts.newest_run or "none"
    return Decision(tuple(f"{consumer}/after/{after}/{n}" for n in range(missing)), f"{state}: starting {missing}")
