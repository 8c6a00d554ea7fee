"""Proof that records came from the topic that the positions belong to, and not from one of the same name that replaced it.

An offset alone cannot tell: in a topic that was deleted and created again, the position may well be valid, and reading on from it
would skip the new topic's beginning without a word. But ids never come back: if the cluster still gives the topic the id under
which its partitions were taken over, everything read before that answer came from that topic.
"""

from collections.abc import Callable

from consumers.clock import Clock
from consumers.errors import BrokerError, OwnershipLost

_PATIENCE_SECONDS = 60.0
_AGAIN_SECONDS = 1.0


class Incarnation:
    """Asked before every commit, in the thread that commits."""

    def __init__(self, ask: Callable[[], str], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock

    def require(self, topic_id: str) -> None:
        """Raise `OwnershipLost` when the topic has another id by now; `BrokerError` when nobody tells for a minute.

        Brokers that know no ids prove nothing, and are believed.
        """
        found = self._patiently()
        if topic_id and found and found != topic_id:
            raise OwnershipLost(
                f"the topic was deleted and created again while it was read (its id was {topic_id}, it is {found} now)"
            )

    def _patiently(self) -> str:
        deadline = self._clock.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._ask()
            except BrokerError:
                if self._clock.monotonic() > deadline:
                    raise
            self._clock.sleep(_AGAIN_SECONDS)
