"""The source tree itself: nothing executes or unpickles what comes from outside, and YAML makes no objects."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("consumers", "orchestration", "spark_jobs")
FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "yaml.load_all", "yaml.unsafe_load"),
    *("yaml.full_load", "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads"),
    *("marshal.load", "marshal.loads", "shelve.open", "dill.load", "dill.loads", "pandas.read_pickle", "pd.read_pickle"),
    *("numpy.load", "np.load", "torch.load", "joblib.load", "tempfile.mktemp"),
}
"""Calls by the name that they are written with."""
ALLOWED = {
    # Both ends are our own: a worker and the process that started it, over a socket that nobody else has.
    ("consumers/processing/parallel/worker.py", "pickle.loads"),
    ("consumers/processing/parallel/process.py", "pickle.loads"),
}


def calls(tree: ast.AST) -> Iterator[str]:
    """What is called that must not be, and shells."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}:
            yield f"from {node.module} import"
        if isinstance(node, ast.Call):
            if (name := ast.unparse(node.func)) in FORBIDDEN:
                yield name
            if any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in node.keywords):
                yield "shell=True"


def found() -> set[tuple[str, str]]:
    """File and call."""
    root = Path(__file__).parents[2]
    files = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    assert len(files) > 200
    return {(path.relative_to(root).as_posix(), name) for path in files for name in calls(ast.parse(path.read_text("utf-8")))}


def test_nothing_executes_or_unpickles_what_comes_from_outside() -> None:
    assert found() == ALLOWED


@pytest.mark.parametrize(
    "line", ["eval(x)", "pickle.loads(b)", "yaml.load(t, L)", "run(c, shell=True)", "from pickle import loads"]
)
def test_what_is_forbidden_is_found(line: str) -> None:
    assert list(calls(ast.parse(line)))


def test_every_dependency_is_pinned_by_hash() -> None:
    lines = (Path(__file__).parents[2] / "requirements.lock").read_text("utf-8").splitlines()
    names = [line for line in lines if line and line[0] not in " #"]
    assert len(names) > 100 and all("==" in line and line.endswith("\\") for line in names)
    assert sum(line.strip().startswith("--hash=sha256:") for line in lines) >= len(names)
