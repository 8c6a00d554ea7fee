"""What the machine did beside a contestant: CPU that neither it nor the broker used, and CPU that a hypervisor took away."""

import resource
from dataclasses import dataclass
from typing import Any

import psutil

from consumers.clock import SystemClock

LIMIT = 0.10
"""The share of all cores that others may use before a result counts as disturbed."""

_LOOK_SECONDS = 3.0
_CLOCK = SystemClock()


@dataclass(frozen=True)
class Noise:
    """Shares of all cores, from 0 to 1, between two moments: used by others, and stolen."""

    others: float
    stolen: float

    @property
    def disturbs(self) -> bool:
        """Whether a result beside it is worth nothing."""
        return self.others > LIMIT or self.stolen > LIMIT / 2

    def __str__(self) -> str:
        return f"others used {self.others:.0%} of all cores, {self.stolen:.0%} was stolen"


class Watch:
    """Between its making and `noise`: what others did. Everything that this process started must have ended by then."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._brokers = _listening(bootstrap_servers)
        self._began, self._before = _CLOCK.monotonic(), self._read()

    def noise(self) -> Noise:
        """So far."""
        capacity = (_CLOCK.monotonic() - self._began) * (psutil.cpu_count() or 1)
        busy, stolen, ours = (now - then for now, then in zip(self._read(), self._before, strict=True))
        return Noise(max(0.0, busy - ours) / capacity, stolen / capacity)

    def _read(self) -> tuple[float, float, float]:
        times: Any = psutil.cpu_times()
        names = ("user", "nice", "system", "irq", "softirq")
        busy = sum(getattr(times, name, 0.0) for name in names)
        return busy, getattr(times, "steal", 0.0), _ours() + sum(map(_used, self._brokers))


def wait_until_quiet(bootstrap_servers: str, seconds: float) -> None:
    """Until others leave the machine alone for a few seconds, or `seconds` have passed."""
    until = _CLOCK.monotonic() + seconds
    while _CLOCK.monotonic() < until:
        watch = Watch(bootstrap_servers)
        _CLOCK.sleep(_LOOK_SECONDS)
        if not watch.noise().disturbs:
            return


def _ours() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _listening(bootstrap_servers: str) -> list[psutil.Process]:
    """The brokers, where they run on this machine."""
    ports = {int(address.rpartition(":")[2]) for address in bootstrap_servers.split(",")}
    found: list[Any] = psutil.net_connections(kind="tcp")
    pids = {c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr.port in ports and c.pid is not None}
    return [psutil.Process(pid) for pid in pids]
