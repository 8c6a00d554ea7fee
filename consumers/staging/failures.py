"""Storage that fails, in an operator's words."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import DeltaError

from consumers.config import Consumer
from consumers.errors import StorageError, WeirError, within


def explained(error: BaseException, consumer: Consumer) -> BaseException:
    """A failure of the storage as a `StorageError` that says what is safe; everything else as it is."""
    if isinstance(error, WeirError) or not isinstance(error, OSError | pa.ArrowException | DeltaError):
        return error
    failure = StorageError(
        f"consumer {consumer.name} could not write to {consumer.staged}: {within(error)}. "
        "Nothing of this batch was committed and "
        "nothing is lost; mend the storage (space, rights, reachability) and start again."
    )
    failure.__cause__ = error
    return failure


@contextmanager
def taking_over(consumer: Consumer) -> Iterator[None]:
    """Say of a storage that fails in here that no partition was taken over. Raises `StorageError`."""
    try:
        yield
    except (OSError, pa.ArrowException, DeltaError) as error:
        raise StorageError(
            f"consumer {consumer.name} could not take partitions over in {consumer.staged} and {consumer.dead_letters}: "
            f"{within(error)}. Nothing is lost; mend the storage (space, rights, reachability) and start again."
        ) from error
