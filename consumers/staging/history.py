"""Commits of a Delta log by version.

delta-rs numbers its own history down from whatever version a table object has loaded, while it reads the log as it is now; so
versions are taken from the names of the log's files instead.
"""

import json
from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable

from consumers.staging.local import table_path


def commit_infos(table: DeltaTable, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Version and `commitInfo` of every commit above `after` up to the loaded version, newest first.

    Ends early where the log has been cleaned up. What a commit's writer put beside Delta's own keys is in the `commitInfo`.
    """
    log = table_path(table) / "_delta_log"
    for version in range(table.version(), after, -1):
        try:
            text = (log / f"{version:020d}.json").read_bytes()
        except FileNotFoundError:
            return
        yield version, _commit_info(text)


def _commit_info(text: bytes) -> dict[str, Any]:
    for line in text.splitlines():
        if b'"commitInfo"' in line:
            info: dict[str, Any] = json.loads(line).get("commitInfo", {})
            if info:
                return info
    return {}
