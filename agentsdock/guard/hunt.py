"""Ending processes that are nobody's any more: found in ``/proc``, held by pidfd, killed (Linux).

The boot sweep needs this.  A process is signalled only through a pidfd that was opened before
it was looked at: if its number was reused meanwhile the signal goes nowhere.  What is found is
stopped first and killed when nothing new is found, for what cannot run cannot fork; and as a
fork storm is never where a listing saw it, the newest processes are looked at until many looks
in a row find nothing.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from attrs import define, field, frozen

from agentsdock.guard.process_guard import all_pids
from agentsdock.guard.procs import Process, last_pid, look, marker_of, own_line

CALM_LOOKS = 50
LOOK_SECONDS = 0.0004
UNCLEAR_SECONDS = CALM_LOOKS * LOOK_SECONDS
"""A newborn process may be invisible for an instant, and is without environment in exec."""
LARGEST_STEP = 4096
"""Pids born between two looks; beyond that, a new listing costs less."""


@frozen
class Ended:
    pid: int
    start_ticks: int


@define
class Hunt:
    """One bounded search for processes by a rule, and their end.

    ``wanted`` judges a process by itself and by its marker.  What descends from a match matches
    too, and so do the members of a session whose leader ``leads`` names.
    """

    wanted: Callable[[Process, str | None], bool]
    leads: Callable[[Process], bool] = lambda _: False
    ended: list[Ended] = field(factory=list)
    _held: dict[int, tuple[Process, int]] = field(factory=dict)
    _strangers: set[int] = field(factory=set)
    _newest: int = 0
    _unclear: deque[tuple[float, int]] = field(factory=deque)

    def run(self, seconds: float) -> tuple[int, ...]:
        """Blocking.  Returns the pids of what still lived when the time was over."""
        until = time.monotonic() + seconds
        try:
            while (now := time.monotonic()) < until:
                found = self._freeze(until - (until - now) / 3)
                self._kill(until)
                if not found and time.monotonic() < until:
                    return ()
            return (*self._held, *self._found_by_listing())
        finally:
            for _, pidfd in self._held.values():
                os.close(pidfd)

    def _found_by_listing(self) -> list[int]:
        self._strangers = own_line()
        before = set(self._held)
        self._hold_wanted(all_pids())
        return [pid for pid in self._held if pid not in before]

    def _freeze(self, until: float) -> bool:
        """Stop all that the rule finds, and tell whether there was any."""
        self._strangers = own_line()
        self._unclear.clear()
        self._newest = last_pid()
        found = self._hold_wanted(all_pids())
        calm = 0
        while calm < CALM_LOOKS and (now := time.monotonic()) < until:
            if self._hold_wanted(self._newborn(now)):
                found, calm = True, 0
            else:
                calm += 1
                time.sleep(LOOK_SECONDS)
        while self._hold_relatives() and time.monotonic() < until:
            found = True
        return found

    def _newborn(self, now: float) -> list[int]:
        """The latest processes, the youngest first, and those that could not be judged yet."""
        while self._unclear and self._unclear[0][0] < now - UNCLEAR_SECONDS:
            self._unclear.popleft()
        again = [pid for _, pid in self._unclear]
        last, before = last_pid(), self._newest
        self._newest = last
        if not 0 <= last - before <= LARGEST_STEP:
            self._strangers = own_line()
            return all_pids()
        born = range(last, before, -1)
        self._unclear.extend((now, pid) for pid in born)
        return [*born, *again]

    def _hold_wanted(self, pids: Iterable[int]) -> bool:
        found = False
        for pid in pids:
            if pid in self._held or pid in self._strangers:
                continue
            with suppress(OSError):
                found |= self._judge(pid)
        return found

    def _judge(self, pid: int) -> bool:
        pidfd = os.pidfd_open(pid)
        process = look(pid)
        marker = marker_of(pid)
        if process is None or process.dead or not self.wanted(process, marker):
            os.close(pidfd)
            if process is not None and marker is not None:
                self._strangers.add(pid)
            return False
        return self._stop(process, pidfd)

    def _stop(self, process: Process, pidfd: int) -> bool:
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        except ProcessLookupError:
            os.close(pidfd)
            return False
        except PermissionError:
            pass  # it will be told as a survivor
        self._held[process.pid] = (process, pidfd)
        return True

    def _hold_relatives(self) -> bool:
        found = False
        sessions = {process.pid for process, _ in self._held.values() if self.leads(process)}
        line = own_line()
        for pid in all_pids():
            if pid in self._held or pid in line:
                continue
            with suppress(OSError):
                pidfd = os.pidfd_open(pid)
                process = look(pid)
                if (
                    process is not None
                    and not process.dead
                    and (process.parent in self._held or process.session in sessions)
                ):
                    found |= self._stop(process, pidfd)
                else:
                    os.close(pidfd)
        return found

    def _kill(self, until: float) -> None:
        poll = select.poll()
        living = {}
        for pid, (_, pidfd) in self._held.items():
            with suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poll.register(pidfd, select.POLLIN)
            living[pidfd] = pid
        while living and (left := until - time.monotonic()) > 0:
            for pidfd, _ in poll.poll(left * 1000):
                poll.unregister(pidfd)
                del living[pidfd]
        for pid in self._held.keys() - set(living.values()):
            process, pidfd = self._held.pop(pid)
            os.close(pidfd)
            with suppress(ChildProcessError):  # it may have come to us meanwhile
                os.waitpid(pid, os.WNOHANG)
            self.ended.append(Ended(pid, process.start_ticks))
