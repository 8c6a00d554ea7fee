"""Versions that vacuum must leave to readers: those that jobs which follow commits have read last, as their outputs say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from orchestration.job_catalog import jobs
from orchestration.settings import Settings


@dataclass(frozen=True)
class Follower:
    """A job that reads commits of its inputs one after the other."""

    job: str
    output: Path
    inputs: Mapping[str, Path]


def followed(followers: Iterable[Follower]) -> dict[Path, int]:
    """Per input table the lowest version that a follower has read last; tables that nobody follows are absent."""
    lowest: dict[Path, int] = {}
    for follower in followers:
        if not DeltaTable.is_deltatable(str(follower.output)):
            continue
        output = DeltaTable(follower.output)
        for name, path in follower.inputs.items():
            version = output.transaction_version(f"{follower.job}/input/{name}")
            if version is not None:
                lowest[path] = min(version, lowest.get(path, version))
    return lowest


def followed_by_jobs() -> dict[Path, int]:
    """The same for the project's jobs."""
    every = [job for job in jobs(Settings.load()).values() if job.follows_commits]
    return followed(Follower(job.name, job.output, {name: each.path for name, each in job.inputs.items()}) for job in every)
