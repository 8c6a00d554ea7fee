"""A failed Spark job in at most 20 lines: what failed, its first real cause, and where the rest is.

Spark wraps an error once per layer that it passes, prints each layer's Java stack, and repeats the Python worker's traceback in
each. The cause is read out of that text, which is the same from a session in this process, from Spark Connect and from an
application's output.
"""

import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import dagster as dg
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError, ConnectionError)
"""What PySpark raises when something went wrong in Spark or on the way there."""

_MOST_LINES = 14
_WIDTH = 400
_TRACEBACK = "Traceback (most recent call last):"
_SPARKS_OWN = re.compile(r'File "[^"]*(/pyspark/|pyspark\.zip|/py4j|/dagster_pipes/|spark_jobs/main\.py|<frozen )')
_CAUSED_BY = re.compile(r"^\s*Caused by: (.+)", re.MULTILINE)
_STACK = re.compile(r"^\s*(at [\w.$<>/]+\(|\.\.\. \d+ more|JVM stacktrace:|Driver stacktrace:|!.*plan!)")
_PLAN = re.compile(r"^('?\+?[-:] |'[A-Z]\w+ |[A-Z]\w+ \[|== .*Plan)")
_TASK = re.compile(r"most recent failure: Lost task [^:]*?: (.+)")
_QUIET_CAUSES = ("java.io.EOFException", "java.lang.InterruptedException")


def failure(what: str, error: Exception, log: Path) -> dg.Failure:
    """The error of a request on a session, for Dagster. `what` is the job; the whole text goes to the file `log`."""
    full = _everything(error)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(full)
    cause = _DRIVER_GONE if _is_gone(error) or jvm_ended() else first_cause(str(error), full)
    return told(what, cause, log)


def told(what: str, cause: Sequence[str], log: Path) -> dg.Failure:
    """One error of at most 20 lines."""
    lines = [f"{what}: Spark failed; nothing was published, and readers see what they saw before.", *_cut(cause)]
    return dg.Failure("\n".join([*lines, f"Everything that Spark said: {log}"]), metadata={"log": dg.MetadataValue.path(log)})


_DRIVER_GONE = (
    "The process of Spark's driver is gone: it was killed, ran out of memory, or its machine ended.",
    "Run it again; where memory is short, raise driver_memory in the resource.",
)


def first_cause(said: str, full: str = "") -> list[str]:
    """The lines that say what went wrong first.

    The Python worker's own traceback without Spark's frames, else the deepest cause that Java names in `full` (the text with
    stacks, by default `said`), else the message.
    """
    full = full or said
    if worker := _worker_traceback(said) or _worker_traceback(full if "PythonException" in full else ""):
        return worker
    if said.startswith("["):  # Spark's own words for an error that it knows, such as a missing column
        return _message(said)
    deepest = [cause for cause in _CAUSED_BY.finditer(full) if not cause[1].startswith(_QUIET_CAUSES)]
    if deepest:
        return _message(full[deepest[-1].start(1) :])
    task = _TASK.search(full)
    return _message(task[1] if task else said)


def _worker_traceback(text: str) -> list[str]:
    """The first traceback in the text, which is the innermost: frames that are not Spark's, and the error."""
    start = text.find(_TRACEBACK)
    if start < 0:
        return []
    block = _one_traceback(text[start:].splitlines()[1:])
    frames = [lines for lines in _frames(block) if lines[0].lstrip().startswith("File ") and not _SPARKS_OWN.search(lines[0])]
    error = [line for line in block if not line.startswith(" ")]
    return [*(line for lines in frames[-3:] for line in lines), *error]


def _one_traceback(lines: Iterable[str]) -> list[str]:
    """Up to and with the error's message, which may have several lines."""
    kept: list[str] = []
    ended = False
    for line in lines:
        if ended and (not line.strip() or _STACK.match(line)):
            break
        ended = ended or (not line.startswith(" ") and bool(line.strip()))
        kept.append(line)
    return kept


def _frames(block: Iterable[str]) -> list[list[str]]:
    frames: list[list[str]] = []
    for line in block:
        if line.lstrip().startswith('File "'):
            frames.append([line])
        elif line.startswith(" ") and frames:
            frames[-1].append(line)
    return frames


def _message(text: str) -> list[str]:
    """The lines before a Java stack or a query plan."""
    return list(_until_noise(text.strip().splitlines()))


def _until_noise(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if _STACK.match(line) or _PLAN.match(line):
            return
        if line.strip():
            yield line


def _cut(lines: Sequence[str]) -> list[str]:
    short = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]} …" for line in lines]
    if len(short) <= _MOST_LINES:
        return short
    return [*short[: _MOST_LINES // 2], f"… {len(short) - _MOST_LINES} lines left out …", *short[-_MOST_LINES // 2 :]]


def _is_gone(error: Exception) -> bool:
    """Whether the JVM does not answer. Its sockets close some moments before its process has ended."""
    if not isinstance(error, ConnectionError):
        return isinstance(error, Py4JNetworkError)
    return any("py4j" in Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__))


def jvm_ended() -> bool:
    """Whether this process had a JVM that is no more."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _everything(error: Exception) -> str:
    """The error with the Java stack that PySpark keeps apart from its message."""
    java = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or ""
    return "".join([*traceback.format_exception(error), "\n", str(java)])
