"""What the engine hands to whoever builds a strategy."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from consumers.clock import Clock, SystemClock
from consumers.metrics import Metrics, NoMetrics
from consumers.processing.strategies.protocol import Commit, Strategy


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Time, chance and measurements: injected, so that a test can own them."""

    clock: Clock = field(default_factory=SystemClock)
    metrics: Metrics = field(default_factory=NoMetrics)
    random: Random = field(default_factory=Random)


@dataclass(frozen=True, slots=True)
class Context:
    """For one strategy: how it tells what is durable, and its surroundings."""

    commit: Commit
    around: Surroundings


Build = Callable[[Context], Strategy[pa.RecordBatch]]
"""Makes the strategy: when the first partitions are assigned, and again after all were gone."""
