"""What a job is: a function, its inputs, its output, and how the one becomes the other."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from orchestration.compute.windows import SAME, Reach, digest
from spark_jobs.functions import load_function
from spark_jobs.request import Audit, Mode, Scalar

WHOLE = ""
"""The one "window" of a job that is not computed by window."""


@dataclass(frozen=True)
class Input:
    """An input table, and which of its windows a window is computed from."""

    path: Path
    reach: Reach = SAME


@dataclass(frozen=True)
class Job:
    """One function, its input tables by name, and its output table, `<tables>/<output>`.

    `follows` is the input whose new commits the modes incremental and merge compute; empty where there is only one input.
    """

    name: str
    function: str
    inputs: Mapping[str, Input]
    output: Path
    mode: Mode = "window"
    declared_version: str | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    buckets: int = 16
    audits: tuple[Audit, ...] = ()
    follows: str = ""

    @property
    def windowed(self) -> bool:
        """Whether it is computed by window."""
        return self.mode == "window"

    @property
    def follows_commits(self) -> bool:
        """Whether it computes what was committed since the last time."""
        return self.mode in {"incremental", "merge"}

    @property
    def followed(self) -> str:
        """The name of the input whose commits are followed."""
        return self.follows or next(iter(self.inputs))

    def missing(self) -> list[str]:
        """Names of inputs that have no table yet."""
        return [name for name, source in self.inputs.items() if not DeltaTable.is_deltatable(str(source.path))]

    def code_version(self) -> str:
        """The declared version, else a hash of the module's file as it is on disk now.

        The file and not the loaded code, so that a long-lived code server and a fresh run agree after an edit.
        """
        if self.declared_version is not None:
            return self.declared_version
        source = inspect.getsourcefile(load_function(self.function))
        return hashlib.sha256(Path(source or "").read_bytes()).hexdigest()[:12]

    def identity(self) -> str:
        """16 hex digits that change when the same input would give another output: code, parameters, mode, keys."""
        how = [self.mode, self.followed, list(self.keys), self.buckets] if self.follows_commits else [self.mode]
        return digest([self.code_version(), json.dumps(dict(self.parameters), sort_keys=True), json.dumps(how)])
