"""`python -m tests.simulation --seed 1234`: one schedule with its trace; `--seeds 10000`: many, and those that fail.

--first N      where many begin (default 0)
--pipeline P   database, transactions or chain, whatever the seeds choose
--shorten      drop what a failing schedule does not need to fail
"""

import argparse
import logging
import sys
import time
from typing import get_args

from tests.simulation.schedule import Pipeline
from tests.simulation.shorten import shortened
from tests.simulation.simulation import run, simulate


def tell(*lines: object) -> None:
    """Write lines to the standard output."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    """Exit code 1 when there are findings."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--seeds", type=int, default=10_000)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--shorten", action="store_true")
    arguments.add_argument("--pipeline", choices=get_args(Pipeline))
    chosen = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    if chosen.seed is not None:
        return one(chosen.seed, chosen.pipeline, chosen.shorten)
    return many(range(chosen.first, chosen.first + chosen.seeds), chosen.pipeline)


def one(seed: int, pipeline: Pipeline | None, shorten: bool) -> int:
    """Tell everything that happens with a seed."""
    outcome = simulate(seed, pipeline)
    if outcome.findings and shorten:
        outcome = run(outcome.setup, shortened(outcome))
    tell(outcome.setup, *outcome.trace)
    tell(*(f"finding: {finding}" for finding in outcome.findings or ["none"]))
    return bool(outcome.findings)


def many(seeds: range, pipeline: Pipeline | None) -> int:
    """Tell which seeds fail."""
    began, failed = time.monotonic(), 0
    for seed in seeds:
        outcome = simulate(seed, pipeline)
        if outcome.findings:
            failed += 1
            more = f" (and {len(outcome.findings) - 1} more)" if len(outcome.findings) > 1 else ""
            tell(f"seed {seed} ({outcome.setup.pipeline}, {outcome.setup.protocol}): {outcome.findings[0]}{more}")
            tell(f"  replay: make simulate ARGS='--seed {seed} --shorten'")
    took = time.monotonic() - began
    tell(f"{len(seeds)} schedules in {took:.0f} s ({took / len(seeds) * 1000:.1f} ms each), {failed} with findings")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
