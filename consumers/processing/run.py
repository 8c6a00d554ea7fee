"""One call that runs any strategy over any broker: the member joins, works until it is told to end, and lets go in good order."""

import threading
from collections.abc import Callable

import pyarrow as pa

from consumers.brokers.protocol import BrokerConsumer
from consumers.processing.context import Build, Surroundings
from consumers.processing.garbage import collected_rarely
from consumers.processing.positions import PositionStore
from consumers.processing.processor import Limits, Processor
from consumers.processing.subscription import Subscription


def run(
    subscription: Subscription,
    broker: BrokerConsumer,
    store: PositionStore,
    build: Build,
    *,
    stop: threading.Event | None = None,
    limits: Limits | None = None,
    around: Surroundings | None = None,
    abort: threading.Event | None = None,
    heartbeat: Callable[[], None] = lambda: None,
) -> str:
    """Run until `stop`, `abort` or a limit; returns which, in words.

    The strategy is closed then; closing the broker's consumer is left to whoever made it. `abort` is `stop` without waiting for
    work in flight. Raises `FatalError` with the cause; what was committed before is safe, and the next run goes on from there, as
    it does after any interruption.
    """
    pa.array([0])  # the first list makes pyarrow import pandas, which takes a second: better before there are records in hand
    processor = Processor(subscription, broker, store, build, around, heartbeat)
    try:
        with collected_rarely():
            return processor.run(stop or threading.Event(), limits or Limits(), abort)
    finally:
        processor.end()
