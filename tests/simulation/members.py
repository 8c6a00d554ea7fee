"""A member of the consumer under test: a process that runs the engine, as far as a simulation can have one."""

from collections.abc import Callable
from dataclasses import dataclass

from consumers.brokers.memory import MemoryConsumer
from consumers.brokers.protocol import Partitions, RebalanceListener
from consumers.errors import FatalError
from consumers.processing.processor import Processor
from consumers.types import Positions
from tests.killing import Killed
from tests.simulation.crossings import Crossings, shown

STOP_SECONDS = 8.0


@dataclass
class Told:
    """Notes what the group tells a member."""

    inner: RebalanceListener
    crossings: Crossings

    def assigned(self, partitions: Partitions) -> Positions:
        starts = self.inner.assigned(partitions)
        self.crossings.note(f"assigned {shown(dict(starts))}")
        return starts

    def revoked(self, partitions: Partitions) -> None:
        self.crossings.note(f"revoked {shown(partitions)}")
        self.inner.revoked(partitions)

    def lost(self, partitions: Partitions) -> None:
        self.crossings.note(f"lost {shown(partitions)}")
        self.inner.lost(partitions)


@dataclass(eq=False)
class Member:
    """One process. `ended` says why it is over; `busy` that it is in the middle of something, maybe stopped there."""

    name: str
    consumer: MemoryConsumer
    processor: Processor
    crossings: Crossings
    instance: str | None = None
    frozen: bool = False
    busy: bool = False
    ended: str = ""
    gone: Callable[[], None] = lambda: None

    @property
    def alive(self) -> bool:
        return not self.ended

    @property
    def able(self) -> bool:
        return self.alive and not self.frozen and not self.busy

    def step(self) -> Exception | None:
        """One turn of its loop. Returns what ended the run, if anything did."""
        return self._do(self.processor.step)

    def leave(self) -> Exception | None:
        """End in good order, as `run` does."""
        error = self._do(lambda: self.processor.finish(STOP_SECONDS))
        if self.alive:
            self._over("left")
        return error

    def die(self) -> None:
        """The process is gone, without a word."""
        self.crossings.dead = True
        self.ended = "died"
        self.consumer.freeze()
        self.gone()

    def freeze(self) -> None:
        """Stop: neither polls nor heartbeats."""
        self.frozen = True
        self.consumer.freeze()

    def _do(self, act: Callable[[], object]) -> Exception | None:
        self.busy = True
        try:
            act()
        except Killed:
            self.die()
        except Exception as error:  # noqa: BLE001 - whatever ends a run; the simulation judges whether it may
            self._over(f"{type(error).__name__}: {error}")
            return error
        finally:
            self.busy = False
        return None

    def _over(self, why: str) -> None:
        """What `run` and its caller do at a run's end, whatever ended it."""
        self.ended = why
        self.crossings.note(f"ends: {why}")
        try:
            self.processor.end()
            self.crossings.cross("before close")
            self.consumer.close()
            self.gone()
        except Killed:
            self.die()
        except FatalError as error:
            self.crossings.note(f"closing raised {type(error).__name__}: {error}")
