"""The jobs of a consumer that an operator launches by hand."""

from collections.abc import Callable

import dagster as dg

from consumers.config import Consumer
from orchestration.operations.move import move_job
from orchestration.operations.repair import repair_job
from orchestration.operations.replay import replay_job
from orchestration.operations.shadow import shadow_job
from orchestration.operations.swap import swap_job

OPERATIONS: tuple[Callable[[Consumer], dg.JobDefinition], ...] = (move_job, repair_job, replay_job, shadow_job, swap_job)
"""Each makes the job of one consumer."""


def operation_jobs(consumer: Consumer) -> list[dg.JobDefinition]:
    """All of them, for one consumer."""
    return [make(consumer) for make in OPERATIONS]
