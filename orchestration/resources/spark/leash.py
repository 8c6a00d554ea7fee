"""Runs a command as long as standard input is open. Run by path, with nothing but the standard library.

Who started it holds the other end: when that process ends, however it does, or lets go, the command and its children end too.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE_SECONDS = 10.0


def main(command: list[str]) -> int:
    """The command's exit code, as a shell has it: 128 plus the number of the signal that ended it."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_end_with_input, args=(child,), daemon=True).start()
    code = child.wait()
    _signal(child, signal.SIGKILL)  # what it left behind, such as a driver whose JVM was killed
    return code if code >= 0 else 128 - code


def _end_with_input(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 4096):
        pass
    _signal(child, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    _signal(child, signal.SIGKILL)


def _signal(child: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
