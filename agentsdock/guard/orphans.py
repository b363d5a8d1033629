"""Orphans that have come to this process because their guard or zygote is gone.

The server is the subreaper above all guards, so whatever a killed guard held becomes a child
of ours, sooner or later, and can be ended as the guard would have done it: by killing direct
children, whose numbers cannot be reused before they are reaped, until none is left.
All of that is Linux; macOS has only :func:`end_marked`.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from agentsdock.guard.process_guard import MARKER_VARIABLE, RELIST_SECONDS, children_of
from agentsdock.guard.procs import Process, helper_name, look

Rule = Callable[[Process], bool]


def orphans(rule: Rule = lambda _: True) -> Iterator[Process]:
    """Children of ours in another session than ours, zombies included, that the rule admits.

    A guard puts its CLI into another session, and no process can come back into ours.
    """
    ours = os.getsid(0)
    for process in map(look, children_of(os.getpid())):
        if process is not None and process.session != ours and rule(process):
            yield process


def reap(rule: Rule) -> None:
    """Collect the zombies among the orphans."""
    for process in orphans(rule):
        if process.dead:
            _wait(process.pid)


def _wait(pid: int) -> int:
    """How a zombie ended; 0 if somebody else collected it."""
    with suppress(ChildProcessError):
        _, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status)
    return 0


def end(rule: Rule, seconds: float) -> tuple[list[int], tuple[int, ...]]:
    """Blocking.  Returns whom we killed, and the pids that still lived when time was over.

    The rule must admit all descendants of what it admits.
    """
    until = time.monotonic() + seconds
    killed: list[int] = []
    while True:
        before = children_of(os.getpid())
        found = list(orphans(rule))
        living = [process.pid for process in found if not process.dead]
        if not found and children_of(os.getpid()) == before:
            return killed, ()
        zombies = [process.pid for process in found if process.dead]
        killed += [pid for pid in zombies if _wait(pid) == -signal.SIGKILL]
        if living and time.monotonic() >= until:
            return killed, tuple(living)
        _kill(living)


def _kill(pids: list[int]) -> None:
    """SIGKILL, and wait a moment for one to end."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, IndexError):
        pidfd = os.pidfd_open(pids[0])
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(RELIST_SECONDS * 1000)
        finally:
            os.close(pidfd)


def end_marked(marker_prefix: str, seconds: float) -> tuple[list[int], tuple[int, ...]]:
    """Without subreaper and ``/proc``: kill what ``ps`` shows with such a marker, best effort.

    Blocking.  Returns whom we killed, and the pids that were still shown when time was over.
    """
    until = time.monotonic() + seconds
    killed: set[int] = set()
    while found := _marked(marker_prefix):
        if time.monotonic() >= until:
            return list(killed), tuple(found)
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
    return list(killed), ()


def _marked(marker_prefix: str) -> list[int]:
    listing = subprocess.run(
        ["/bin/ps", "-axEww", "-o", "pid=,command="],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    ).stdout
    wanted, ours = f" {MARKER_VARIABLE}={marker_prefix}".encode(), helper_name().encode()
    lines = [line for line in listing.splitlines() if wanted in line and ours not in line]
    shown = [int(line.split(None, 1)[0]) for line in lines]
    return [pid for pid in shown if pid not in (os.getpid(), os.getppid())]
