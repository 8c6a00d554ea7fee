"""A table's application transactions, all in one pass over its log.

delta-rs tells one at a time, and reads the log from its newest checkpoint for each: a job asks for one of every window without
rows.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable

from consumers.staging.local import table_path

_TXN = "txn"


def transactions(table: DeltaTable) -> dict[str, int]:
    """Application → version in the loaded snapshot, as far as the log is there."""
    log = table_path(table) / "_delta_log"
    checkpoints = (int(path.name.partition(".")[0]) for path in log.glob("[0-9]*.checkpoint*.parquet"))
    newest = max((version for version in checkpoints if version <= table.version()), default=-1)
    found = [action for path in sorted(log.glob(f"{newest:020d}.checkpoint*.parquet")) for action in _checkpointed(path)]
    for version in range(newest + 1, table.version() + 1):
        found += _committed(log / f"{version:020d}.json")
    return {str(action["appId"]): int(action["version"]) for action in found}


def _checkpointed(path: Path) -> list[dict[str, Any]]:
    if _TXN not in pq.read_schema(path).names:
        return []
    return [action for action in pq.read_table(path, columns=[_TXN])[_TXN].to_pylist() if action and action["appId"]]


def _committed(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    actions = (json.loads(line) for line in path.read_bytes().splitlines() if b'"txn"' in line)
    return [action[_TXN] for action in actions if _TXN in action]
