"""`python -m tests.faults`: scenarios of faults on a real Kafka, one after the other, and the matrix of what came of them.

Exit code 1 where the oracle found anything, where a fault did not fire or moved too few records, or recovery took too long.
"""

import argparse
import logging
import sys
from pathlib import Path

from tests.faults import scenarios  # noqa: F401 - importing them registers them
from tests.faults.matrix import Choice, heading, markdown, run_all, told
from tests.faults.scenario import SCENARIOS, Scenario


def main() -> int:
    """Run what was asked for."""
    asked = _parser().parse_args()
    chosen = _chosen(asked.only)
    logging.basicConfig(level=logging.WARNING)
    choice = Choice(asked.seed, asked.times, asked.records, asked.pace, asked.spark)
    _tell(f"seed {asked.seed}, pace {asked.pace:g}", heading())
    rows = []
    for row in run_all(chosen, choice):
        _tell(*told(row))
        rows.append(row)
        if asked.markdown:
            asked.markdown.write_text(markdown(rows))
    return int(any(row.outcome.verdict != "passed" for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", default="", help=f"some of: {','.join(SCENARIOS)}")
    parser.add_argument("--times", type=int, help="how often each fault comes, instead of the scenario's own count")
    parser.add_argument("--records", type=int, help="records of each scenario, instead of its own count")
    parser.add_argument("--seed", type=int, default=20130101)
    parser.add_argument("--pace", type=float, default=1.0, help="shortens waits between faults: 0.1 is a tenth")
    parser.add_argument("--spark", action="store_true", help="load every table with Spark, too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the matrix there, after every scenario")
    return parser


def _chosen(only: str) -> list[Scenario]:
    names = [name.strip() for name in only.split(",") if name.strip()] or list(SCENARIOS)
    if strange := [name for name in names if name not in SCENARIOS]:
        sys.exit(f"no such scenario: {', '.join(strange)}; there are {', '.join(SCENARIOS)}")
    return [SCENARIOS[name] for name in names]


def _tell(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
