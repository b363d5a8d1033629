"""Ending processes that no guard holds any more: found in ``/proc``, held by pidfd, killed.

The server needs this where a guard was killed, and at boot.  A process is only ever signalled
through a pidfd whose owner was looked at again after the pidfd was opened, so a reused number
is never hit.  Everything found is stopped first and killed when a search finds nothing new:
what cannot run cannot fork.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeGuard

from attrs import define, field, frozen

from agentsdock.guard.process_guard import (
    MARKER_VARIABLE,
    all_pids,
    children_of,
    read_bytes,
    stat_fields,
)

KERNEL = (0, 2)
"""Parents of what has no environment because it is no program."""
QUIET_SCANS = 2
"""A process is without its environment for an instant in exec; a second look sees it."""


@frozen
class Process:
    pid: int
    parent: int
    session: int
    start_ticks: int
    dead: bool


def look(pid: int) -> Process | None:
    fields = stat_fields(pid)
    if fields is None:
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in b"ZX")


def marker_of(pid: int) -> str | None:
    """The run marker in a process's environment; "" without one, None if it has no environment.

    Of a process that we may not read it is "" too: it cannot be told apart from a stranger.
    """
    try:
        environment = read_bytes(f"/proc/{pid}/environ")
    except OSError:
        return ""
    if not environment:
        return None
    name = MARKER_VARIABLE.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(name):
            return os.fsdecode(entry[len(name) :])
    return ""


def own_line() -> set[int]:
    """This process and its ancestors, which are never to be ended."""
    line: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        process = look(pid)
        pid = process.parent if process else 0
    return line


def reap_adopted(own: int | None) -> None:
    """Collect ended children that we did not start; ``own`` is the one child that we did."""
    for process in filter(adopted, map(look, children_of(os.getpid()))):
        if process.dead and process.pid != own:
            _reap(process.pid)


def hold(pid: int, began: int | None) -> int | None:
    """A pidfd of the process of that number that began then; None if it is gone.

    Raises OSError.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    process = look(pid)
    if process is None or process.dead or process.start_ticks != began:
        os.close(pidfd)
        return None
    return pidfd


def adopted(process: Process | None) -> TypeGuard[Process]:
    """Whether this is an orphan that came to us because its guard or zygote is gone.

    A guard puts its CLI into another session than ours, and no process can come back into it.
    """
    return process is not None and process.parent == os.getpid() and process.session != os.getsid(0)


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@frozen
class Ended:
    pid: int
    start_ticks: int


@define
class Hunt:
    """One bounded search for processes by a rule, and their end.

    ``wanted`` judges one process by itself; what descends from a match matches too, and so do
    the members of a session whose leader ``leads`` names.
    """

    wanted: Callable[[Process, str | None], bool]
    leads: Callable[[Process], bool] = lambda _: False
    ended: list[Ended] = field(factory=list)
    _held: dict[int, tuple[Process, int]] = field(factory=dict)
    _strangers: set[int] = field(factory=set)

    def run(self, seconds: float) -> tuple[int, ...]:
        """Blocking.  Returns the pids of what still lived when the time was over."""
        until = time.monotonic() + seconds
        quiet = 0
        try:
            while quiet < QUIET_SCANS and time.monotonic() < until:
                self._strangers = own_line()
                quiet = 0 if self._freeze(until) else quiet + 1
                self._kill(until)
            if quiet < QUIET_SCANS:
                return (*self._held, *(process.pid for process in self._search()))
            return tuple(self._held)
        finally:
            for _, pidfd in self._held.values():
                os.close(pidfd)

    def _freeze(self, until: float) -> bool:
        """Stop all that the rule finds, until a search finds nothing new."""
        found_any = False
        while [process for process in self._search() if self._hold(process)]:
            found_any = True
            if time.monotonic() >= until:
                break
        return found_any

    def _search(self) -> Iterable[Process]:
        unknown = [p for p in all_pids() if p not in self._held and p not in self._strangers]
        rest: list[Process] = []
        settled: set[int] = set()
        for pid in unknown:
            process = look(pid)
            if process is None or process.dead:
                continue
            marker = marker_of(pid)
            if self.wanted(process, marker):
                yield process
                continue
            rest.append(process)
            if marker is not None or process.parent in KERNEL:
                settled.add(pid)
        while rest:
            sessions = {p.pid for p, _ in self._held.values() if self.leads(p)}
            related = [p for p in rest if p.parent in self._held or p.session in sessions]
            yield from related
            if not related:
                break
            rest = [p for p in rest if p not in related]
        self._strangers |= settled & {p.pid for p in rest}

    def _hold(self, process: Process) -> bool:
        pidfd = hold(process.pid, process.start_ticks)
        if pidfd is None:
            return False
        self._held[process.pid] = (process, pidfd)
        with suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        return True

    def _kill(self, until: float) -> None:
        for _, pidfd in self._held.values():
            with suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        living = dict(self._held)
        poll = select.poll()
        for _, pidfd in living.values():
            poll.register(pidfd, select.POLLIN)
        by_fd = {pidfd: pid for pid, (_, pidfd) in living.items()}
        while living and (left := until - time.monotonic()) > 0:
            for pidfd, _ in poll.poll(left * 1000):
                poll.unregister(pidfd)
                del living[by_fd[pidfd]]
        for pid in self._held.keys() - living.keys():
            process, pidfd = self._held.pop(pid)
            os.close(pidfd)
            _reap(pid)
            self.ended.append(Ended(pid, process.start_ticks))
