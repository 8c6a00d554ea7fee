"""What a Spark job is and what it would have to do now. Knows Delta's logs, no Dagster, no session."""

import hashlib
import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from orchestration.components.spark_state import WHOLE, Output, Pinned, exists, fingerprint, pin, read_output
from spark_jobs.runner import JobFunction, Request, Source


@dataclass(frozen=True)
class Plan:
    """Pinned inputs, the output as it is, and of the windows looked at: what each should hold, and which do
    not hold it.
    """

    inputs: Mapping[str, Pinned]
    output: Output
    fingerprints: Mapping[str, str]
    stale: tuple[str, ...]

    @property
    def versions(self) -> str:
        """For people: `flights v41, weather v12`."""
        return ", ".join(f"{name} v{pinned.version}" for name, pinned in self.inputs.items())


@dataclass(frozen=True)
class Job:
    """One function, its input tables by name, and its output table."""

    name: str
    function: str
    inputs: Mapping[str, Path]
    output: Path
    windowed: bool
    declared_version: str | None = None

    def missing(self) -> list[str]:
        """Names of inputs that have no table yet."""
        return [name for name, path in self.inputs.items() if not exists(path)]

    def code_version(self) -> str:
        """The declared version, else a hash of the module's file as it is on disk now.

        The file and not the loaded code, so that a long-lived code server and a fresh run agree after an
        edit.
        """
        if self.declared_version is not None:
            return self.declared_version
        source = inspect.getsourcefile(load_function(self.function))
        return hashlib.sha256(Path(source or "").read_bytes()).hexdigest()[:12]

    def plan(self, windows: Sequence[str] | None = None) -> Plan:
        """Compare these windows, or all that any table holds, with what they should be. All inputs must
        exist.
        """
        inputs = {name: pin(path, self.windowed) for name, path in self.inputs.items()}
        output = read_output(self.output, self.windowed)
        if not self.windowed:
            windows = [WHOLE]
        elif windows is None:
            windows = sorted({*output.fingerprints, *(window for pinned in inputs.values() for window in pinned.contents)})
        code = self.code_version()
        wanted = {window: fingerprint(code, inputs, window) for window in windows}
        stale = tuple(window for window in wanted if not output.holds(self.name, window, wanted[window]))
        return Plan(inputs, output, wanted, stale)

    def request(self, plan: Plan) -> Request:
        """What Spark is to compute."""
        sources = {name: Source(str(pinned.path), pinned.version) for name, pinned in plan.inputs.items()}
        wanted = {window: plan.fingerprints[window] for window in plan.stale}
        return Request(self.name, self.code_version(), sources, str(self.output), wanted)


def load_function(dotted: str) -> JobFunction:
    """Import `package.module.function`. Raises ValueError that says what is missing."""
    module_name, _, name = dotted.rpartition(".")
    if not module_name:
        raise ValueError(f"'{dotted}' is no dotted path to a function, such as spark_jobs.airport_delays.airport_delays")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"cannot import '{module_name}' of '{dotted}': {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"module '{module_name}' has no function '{name}'")
    return cast(JobFunction, function)
