"""The jobs of a consumer that an operator launches by hand."""

from collections.abc import Callable

import dagster as dg

from consumers.config import Consumer

OPERATIONS: tuple[Callable[[Consumer], dg.JobDefinition], ...] = ()
"""Each makes the job of one consumer."""


def operation_jobs(consumer: Consumer) -> list[dg.JobDefinition]:
    """All of them, for one consumer."""
    return [make(consumer) for make in OPERATIONS]
