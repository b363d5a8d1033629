"""Logs: readable on a terminal, one JSON object a line otherwise.

structlog is imported when the logs are configured, after the server listens; until then the
lines are kept.  No prompt, token or stderr text is ever given to a log.
"""

import collections
import contextlib
import sys
import threading
import traceback
from typing import Any, TextIO

_WAITING_LINES = 200
_waiting: collections.deque[tuple[str, str, dict[str, Any]]] = collections.deque(
    maxlen=_WAITING_LINES
)
_lock = threading.Lock()
_backend: Any = None


class Log:
    """A logger with bound fields (``chat``, ``run``, ...)."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> "Log":
        return Log(**self._fields, **fields)

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        line = (level, event, {**self._fields, **fields})
        with _lock:
            if _backend is None:
                _waiting.append(line)
                return
        _emit(line)


def _emit(line: tuple[str, str, dict[str, Any]]) -> None:
    level, event, fields = line
    # Whoever reads the log may have gone, and no turn must fail for that.
    with contextlib.suppress(OSError, ValueError):
        getattr(_backend, level)(event, **fields)


def configure(stream: TextIO = sys.stderr) -> None:
    """Import and set up structlog, then write what has waited."""
    global _backend
    structlog = _import_structlog()
    readable = stream.isatty()
    renderer = (
        structlog.dev.ConsoleRenderer()
        if readable
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    logger = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )
    with _lock:
        _backend = logger
        kept = list(_waiting)
        _waiting.clear()
    for line in kept:
        _emit(line)


def _import_structlog() -> Any:
    """structlog without its optional rich: tracebacks are not for the server's log, and rich
    would cost each server 20 MB and a quarter of a second."""
    absent = object()
    rich = sys.modules.get("rich", absent)
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        if rich is absent:
            del sys.modules["rich"]
        else:
            sys.modules["rich"] = rich  # type: ignore[assignment]
    return structlog


def where(error: BaseException) -> str:
    """An exception's type and place for the log, without its message (which may quote users)."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    places = traceback.extract_tb(error.__traceback__)[-4:]
    way = " > ".join(f"{place.name}:{place.lineno}" for place in places)
    return f"{type(error).__name__} in {way}"


def get_logger(**fields: Any) -> Log:
    return Log(**fields)
