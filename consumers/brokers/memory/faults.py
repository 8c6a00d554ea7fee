"""What a test can order an in-memory cluster to do wrong. Orders wait until a call takes them, the oldest first."""

from dataclasses import dataclass
from typing import Literal

Call = Literal[
    "poll",
    "fetch",
    "commit",
    "watermarks",
    "group_offsets",
    "set_group_offsets",
    "offsets_at",
    "partitions",
    "topic_id",
    "topic_config",
    "topics",
    "produce",
    "begin",
    "send_offsets",
    "commit_transaction",
    "abort_transaction",
    "create_topic",
    "delete_topic",
    "add_partitions",
    "delete_records",
]
"""The calls that can go wrong: those of consumers, producers and admins that reach a broker."""


@dataclass(slots=True)
class Fault:
    """What happens to some calls: it takes `seconds`, then fails, with or without having had its effect."""

    call: Call
    client: str | None
    times: int
    seconds: float = 0.0
    fails: Literal["no", "transient", "fatal"] = "no"
    effect: bool = False


class Faults:
    """Orders for the calls of an in-memory cluster's clients.

    Each method takes `times`, how many calls are hit, and `client`, the `client_id` of the only one to be hit (None: any).
    Clients answer as the real ones do: a transient failure is tried again by the client itself and reaches nobody unless it
    lasts, a fatal one is a `BrokerError`. A record whose `produce` fails fatally is refused: its delivery says so.
    """

    def __init__(self) -> None:
        self._orders: list[Fault] = []

    def fail(self, call: Call, times: int = 1, *, fatal: bool = False, client: str | None = None) -> None:
        """The call fails before it has any effect.

        A poll that fails transiently gives nothing, and a commit of group offsets that fails in any way is logged.
        """
        self._add(Fault(call, client, times, fails="fatal" if fatal else "transient"))

    def lose_acknowledgement(self, call: Call = "produce", times: int = 1, *, client: str | None = None) -> None:
        """The call has its effect, but its answer is lost, so that the client takes it for failed and tries again."""
        self._add(Fault(call, client, times, fails="transient", effect=True))

    def delay(self, call: Call, seconds: float, times: int = 1, *, client: str | None = None) -> None:
        """The call takes so long, by the cluster's clock, before it has its effect."""
        self._add(Fault(call, client, times, seconds=seconds))

    def put_out_of_range(self, times: int = 1, *, client: str | None = None) -> None:
        """A fetch is told that its position is not in the topic, whatever the watermarks say."""
        self._add(Fault("fetch", client, times, fails="fatal"))

    def clear(self) -> None:
        """Forget every order that is left."""
        self._orders.clear()

    @property
    def left(self) -> int:
        """How many calls are still to be hit."""
        return sum(fault.times for fault in self._orders)

    def take(self, call: Call, client: str) -> Fault | None:
        """The order for this call, if there is one; asked by the cluster."""
        for fault in self._orders:
            if fault.call == call and fault.client in (None, client):
                fault.times -= 1
                if not fault.times:
                    self._orders.remove(fault)
                return fault
        return None

    def _add(self, fault: Fault) -> None:
        if fault.times < 1:
            raise ValueError(f"a fault for {fault.times} calls of '{fault.call}' would never happen")
        self._orders.append(fault)
