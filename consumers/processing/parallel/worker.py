"""What runs in a worker process: take columns, call the user's function, hand back what it made.

Started by `process.py` as an interpreter of its own, so it imports as little as it can: no Kafka, no Delta, no Dagster.
"""

import fcntl
import os
import pickle
import select
import signal
import socket
import traceback
from dataclasses import dataclass, replace
from typing import Any

from consumers.errors import TaskFailed, within
from consumers.processing.parallel.blocks import Columns, Incoming, Outgoing, Parcel
from consumers.processing.strategies.protocol import Rejection
from consumers.processing.strategies.task import Function, attempt, name_of, places
from consumers.types import Ranges


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a parcel. The columns that the function made, if it made any, are in the parcel that this is the note of.

    `failure` says why it made none, `trace` where. With `keep_block` somebody in the worker still reads the block that was sent.
    """

    rejected: tuple[Rejection, ...] = ()
    failure: str | None = None
    trace: str = ""
    keep_block: bool = False


def main(connection: int, lifeline: int) -> None:
    """Serve until the other side closes the connection; die at once when its process is gone."""
    _die_with(lifeline)
    with socket.socket(fileno=connection) as link:
        try:
            _serve(Incoming(link), Outgoing(link))
        except (EOFError, ConnectionError):
            return


def _die_with(lifeline: int) -> None:
    """Have the kernel kill this process when the other end of a pipe is closed, also while C code holds the interpreter."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    if hasattr(fcntl, "F_SETSIG"):  # elsewhere it is SIGIO, which kills as well unless somebody handles it
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # closed before the kernel was asked to watch it
        os._exit(1)


def _serve(incoming: Incoming, outgoing: Outgoing) -> None:
    function = _load(incoming.receive(copy=False).note)
    while True:
        answer = _answer(function, incoming.receive(copy=False), outgoing)
        outgoing.send(pickle.dumps(replace(answer, keep_block=incoming.in_use)))


def _load(pickled: bytes) -> Function[Columns, Columns] | Answer:
    """The function; or what to answer instead of calling it."""
    try:
        loaded: Function[Columns, Columns] = pickle.loads(pickled)
    except Exception as error:  # noqa: BLE001 - raised again by the process that sent it
        failure = (
            f"A worker process could not load the function: {type(error).__name__}: {within(error)}. "
            "It must stand at the top level of a "
            "module that the worker can import: not in the script that was started, not inside another function. Nothing was "
            "processed, nothing is lost."
        )
        return Answer(failure=failure, trace=traceback.format_exc())
    return loaded


def _answer(function: Function[Columns, Columns] | Answer, parcel: Parcel, outgoing: Outgoing) -> Answer:
    if isinstance(function, Answer):
        return function
    ranges: Ranges = pickle.loads(parcel.note)
    try:
        made = attempt(function, parcel.columns, ranges)
    except TaskFailed as failed:
        return Answer(failure=str(failed), trace="".join(traceback.format_exception(failed.__cause__)))
    if not isinstance(made.value, Columns):
        return Answer(failure=_no_columns(function, made.value, ranges))
    outgoing.write(made.value)
    return Answer(made.rejected)


def _no_columns(function: Function[Columns, Columns], value: Any, ranges: Ranges) -> str:
    return (
        f"The function {name_of(function)} returned {type(value).__name__} on {places(ranges)}. Only a record batch or a table "
        "crosses to another process: let it return one (`each_mapped` makes one of a function per record), or run it in threads. "
        "Nothing from these offsets on was committed; everything before is safe."
    )
