"""A function for worker processes. It imports little, so that a worker that has loaded it shows what every worker imports."""

import os
import re
import signal
import sys
from pathlib import Path

import pyarrow as pa

from consumers.clock import SystemClock
from consumers.errors import InvalidRecord
from consumers.processing.strategies.task import Partial

_kept: list[pa.RecordBatch] = []


def told(batch: pa.RecordBatch, do: str, with_: str = "") -> pa.RecordBatch:
    """The batch, with what `obey` is to do written on it."""
    return batch.replace_schema_metadata({"do": do, "with": with_})


def said(batch: pa.RecordBatch) -> str:
    """What `obey` wrote on its result."""
    return str(batch.schema.metadata[b"said"].decode())


def obey(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Does what the batch tells it to."""
    orders = batch.schema.metadata or {}
    return _ORDERS[orders.get(b"do", b"same").decode()](batch, orders.get(b"with", b"").decode())


def _say(batch: pa.RecordBatch, what: object) -> pa.RecordBatch:
    return batch.replace_schema_metadata({"said": str(what)})


def _raise(batch: pa.RecordBatch, with_: str) -> pa.RecordBatch:
    raise ZeroDivisionError(f"{with_} apples for nobody")


def _kill_the_first(batch: pa.RecordBatch, marker: str) -> pa.RecordBatch:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def _die(batch: pa.RecordBatch, how: str) -> pa.RecordBatch:
    if how.isdigit():
        os._exit(int(how))
    os.kill(os.getpid(), signal.Signals[how])
    return batch


def _keep(batch: pa.RecordBatch, with_: str) -> pa.RecordBatch:
    _kept.append(batch)
    return batch


def _show_kept(batch: pa.RecordBatch, with_: str) -> pa.RecordBatch:
    return _kept.pop()


def _hold_the_interpreter(batch: pa.RecordBatch, marker: str) -> pa.RecordBatch:
    Path(marker).write_text(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 60 + "b")
    return batch


def _ignore_sigterm(batch: pa.RecordBatch, marker: str) -> pa.RecordBatch:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(marker).write_text(str(os.getpid()))
    SystemClock().sleep(60)
    return batch


def _refuse_first(batch: pa.RecordBatch, with_: str) -> pa.RecordBatch:
    first = InvalidRecord(batch["partition"][0].as_py(), batch["offset"][0].as_py(), with_)
    raise Partial(batch.slice(1), [first])


def _wait(batch: pa.RecordBatch, seconds: str) -> pa.RecordBatch:
    SystemClock().sleep(float(seconds))
    return batch


_ORDERS = {
    "same": lambda batch, with_: batch,
    "repeat": lambda batch, times: pa.concat_batches([batch] * int(times)),
    "as table": lambda batch, with_: pa.Table.from_batches([batch, batch]),
    "return a list": lambda batch, with_: [1],
    "say pid": lambda batch, with_: _say(batch, os.getpid()),
    "say modules": lambda batch, with_: _say(batch, " ".join(sys.modules)),
    "say rows": lambda batch, with_: _say(batch, batch.num_rows),
    "raise": _raise,
    "kill the first": _kill_the_first,
    "die": _die,
    "keep": _keep,
    "show kept": _show_kept,
    "hold the interpreter": _hold_the_interpreter,
    "ignore SIGTERM": _ignore_sigterm,
    "refuse first": _refuse_first,
    "wait": _wait,
}
