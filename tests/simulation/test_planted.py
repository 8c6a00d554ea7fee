"""The simulation finds what is planted, within the seeds that `make test` runs."""

from contextlib import ExitStack
from unittest.mock import patch

import pytest

from tests.simulation.planted import PLANTS, Plant
from tests.simulation.simulation import simulate

SEEDS = range(400)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.name} ({plant.pipeline})")
def test_a_planted_defect_is_found(plant: Plant) -> None:
    with ExitStack() as planted:
        for target, name, changed in plant.changes:
            planted.enter_context(patch.object(target, name, changed))
        assert any(simulate(seed, plant.pipeline).findings for seed in SEEDS)
