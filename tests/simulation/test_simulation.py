"""A thousand seeded schedules: members come, go, freeze and die, calls fail, and nothing is lost, twice or out of order."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.schedule import setup_of
from tests.simulation.simulation import digest, simulate

ROOT = Path(__file__).parents[2]
PART = 50
REPLAYED = range(24)


@pytest.mark.parametrize("first", range(0, 1_000, PART))
def test_nothing_is_lost_or_twice_or_out_of_order(first: int) -> None:
    failed = {seed: found for seed in range(first, first + PART) if (found := simulate(seed).findings)}
    assert not failed, f"replay with: make simulate ARGS='--seed {min(failed)}'"


def test_seeds_choose_every_pipeline_and_protocol() -> None:
    setups = [setup_of(seed) for seed in range(1_000)]
    assert {(setup.pipeline, setup.protocol) for setup in setups} == {
        (pipeline, protocol)
        for pipeline in ("database", "transactions", "chain")
        for protocol in ("eager", "cooperative", "consumer")
    }


def test_a_seed_replays_identically() -> None:
    assert [simulate(seed).trace for seed in REPLAYED] == [simulate(seed).trace for seed in REPLAYED]


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_replays_identically_in_another_process(hash_seed: str) -> None:
    told = f"from tests.simulation.simulation import digest; print(digest(range({len(REPLAYED)})))"
    other = subprocess.run(
        [sys.executable, "-c", told],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest(REPLAYED)


def test_a_digest_tells_traces_apart() -> None:
    assert digest(range(1)) != digest(range(1, 2)) != hashlib.sha256().hexdigest()
