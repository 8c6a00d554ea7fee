"""Python's search for garbage in cycles, while a member polls.

The client makes an object of every record. They live for a batch and are in no cycles, but Python counts them, and by default
looks through the newest after every 700: half of the time that polling takes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLD = (100_000, 50, 1_000)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Inside of the block all that was there before is left out, and new objects are looked through once in 100,000."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*map(max, before, _THRESHOLD))
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
