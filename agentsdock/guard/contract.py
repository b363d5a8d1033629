"""What the runtime asks of a guarded process, and what it is told about it afterwards."""

import errno
from collections.abc import Mapping
from typing import Protocol

from attrs import frozen


class SpawnFailed(Exception):
    """The CLI could not be started.  ``errno`` is the system's, where it was the system."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number

    @property
    def too_long(self) -> bool:
        """An argument, or all of argv and environment, was too long for the system."""
        return self.errno == errno.E2BIG


@frozen
class LaunchSpec:
    """One process to guard.

    ``argv[0]`` is a path.  ``stop_signals`` are sent in order, evenly spread over ``grace``
    seconds, before SIGKILL; what will not die within ``teardown_grace`` seconds more is a
    survivor.  ``stdin`` is all that the CLI can read; ``None`` is an empty stdin.  ``marker``
    is put into the environment so that a later server life can find what this one left.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    marker: str
    stdin: bytes | None = None
    stop_signals: tuple[str, ...] = ("SIGTERM",)
    grace: float = 2.0
    teardown_grace: float = 1.5
    background: bool = True
    """Run at lower scheduling priority than the server."""


@frozen
class Report:
    """How a guarded tree ended.

    ``exit_code`` is the CLI's own (negative: killed by that signal; None: it never ran or its
    status was lost).  ``killed`` says that the guard ended the CLI on our request.
    ``processes_ended`` counts what the guard had to kill besides.  ``survivors`` are pids that
    were still alive when the bounded time ran out; empty means proven empty.
    """

    exit_code: int | None
    killed: bool
    processes_ended: int
    survivors: tuple[int, ...]
    elapsed_ms: float
    cpu_seconds: float | None
    max_rss_bytes: int | None
    rung: str
    guard_lost: bool = False

    @property
    def tree_empty(self) -> bool:
        return not self.survivors


class GuardedProcess(Protocol):
    """A running CLI under its guard.  Whoever launched it calls ``end`` and ``aclose``."""

    pid: int
    start_ticks: int | None
    guard_pid: int
    guard_start: int | None

    async def read_stdout(self, max_bytes: int) -> bytes:
        """Next bytes, or b"" at end of file."""
        ...

    async def read_stderr(self, max_bytes: int) -> bytes: ...

    async def wait_report(self) -> Report:
        """Until the guard has reported (or was lost and its tree has been cleared)."""
        ...

    def request_stop(self) -> None:
        """Ask the guard to end the tree: stop signals, grace, SIGKILL.  Idempotent, instant."""
        ...

    async def end(self) -> Report:
        """Request a stop, wait for the report within the bounded time, escalate.

        Runs to its end although the caller is cancelled; never longer than
        grace + teardown grace + a second.
        """
        ...

    async def aclose(self) -> None:
        """Close our ends of the pipes; the guard itself is gone afterwards.

        Call after the report.  Without one the guard takes it for our death: SIGKILL, no grace.
        """
        ...


class Launcher(Protocol):
    async def launch(self, spec: LaunchSpec) -> GuardedProcess:
        """Start a process under a guard of its own.  Raises SpawnFailed.

        Not cancelled half way: it returns what it started, or has started nothing.
        """
        ...

    rung: str
    """``subreaper`` on Linux, ``process_group`` on macOS."""
