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
    for version in range(table.version(), after, -1):
        if (info := commit_info(table, version)) is None:
            return
        yield version, info


def commit_info(table: DeltaTable, version: int) -> dict[str, Any] | None:
    """The `commitInfo` of one commit, empty where it has none; None where the log has been cleaned up."""
    try:
        text = _text(table, version)
    except FileNotFoundError:
        return None
    return _commit_info(text)


def file_actions(table: DeltaTable, version: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What a commit added to the table, and what it removed, as the log has it. Raises FileNotFoundError after a clean-up."""
    added, removed = [], []
    for line in _text(table, version).splitlines():
        action = json.loads(line)
        if "add" in action:
            added.append(action["add"])
        elif "remove" in action:
            removed.append(action["remove"])
    return added, removed


def _text(table: DeltaTable, version: int) -> bytes:
    return (table_path(table) / "_delta_log" / f"{version:020d}.json").read_bytes()


def _commit_info(text: bytes) -> dict[str, Any]:
    for line in text.splitlines():
        if b'"commitInfo"' in line:
            info: dict[str, Any] = json.loads(line).get("commitInfo", {})
            if info:
                return info
    return {}
