"""Signs of life for probes: a file that is fresh, or an HTTP answer, while a consumer makes progress."""

import json
import logging
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from consumers.clock import Clock
from consumers.errors import ConfigError

log = logging.getLogger(__name__)

_TOUCH_SECONDS = 1.0
_ANSWER_SECONDS = 0.05


def together(*heartbeats: Callable[[], None]) -> Callable[[], None]:
    """One heartbeat that passes on to several, in their order."""

    def beat() -> None:
        for heartbeat in heartbeats:
            heartbeat()

    return beat


class HealthFile:
    """A file whose modification time is that of the last progress, to a second.

    It is replaced as a whole, so a probe never sees half of it; inside are the process's id and the time. A file that cannot be
    written is logged once and stops nobody: the probe finds it old.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Raises `ConfigError` when there is no such folder."""
        if not path.parent.is_dir():
            raise ConfigError(
                f"the health file {path} cannot be written: there is no folder {path.parent}. Make it, or mend the path."
            )
        self._path = path
        self._new = path.with_name(f".{path.name}.{os.getpid()}")
        self._clock = clock
        self._touched: float | None = None
        self._failing = False

    def progress(self) -> None:
        """Renew the file, at most once a second."""
        now = self._clock.monotonic()
        if self._touched is not None and now - self._touched < _TOUCH_SECONDS:
            return
        self._touched = now
        try:
            self._new.write_text(json.dumps({"pid": os.getpid(), "time": self._clock.time()}))
            self._new.replace(self._path)
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("the health file %s cannot be written: %s", self._path, error)
            self._failing = True

    def close(self) -> None:
        """Take the file away: a consumer that has ended is not healthy."""
        for path in (self._path, self._new):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("the health file %s cannot be removed: %s", path, error)


class HealthEndpoint:
    """`/healthz` over HTTP: 200 while the last progress is at most `seconds` old, else 503. Serves until closed."""

    def __init__(self, clock: Clock, seconds: float, port: int, host: str = "127.0.0.1") -> None:
        """With port 0 the system chooses. Raises `ConfigError` when the port is taken."""
        self._clock = clock
        self._seconds = seconds
        self._last = clock.monotonic()
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except OSError as error:
            raise ConfigError(f"health cannot be served on {host}:{port}: {error}. Choose another port.") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_ANSWER_SECONDS,), name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is served."""
        return self._server.server_port

    def progress(self) -> None:
        """Something got on."""
        self._last = self._clock.monotonic()

    def answer(self) -> tuple[int, dict[str, object]]:
        """The HTTP status, and what the body says."""
        age = self._clock.monotonic() - self._last
        healthy = age <= self._seconds
        return 200 if healthy else 503, {"healthy": healthy, "seconds_since_progress": round(age, 3)}

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answer() if self.path == "/healthz" else (404, {"error": "there is only /healthz"})
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                """Probes are no news."""

        return Handler
