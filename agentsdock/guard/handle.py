"""The server's side of the guard: launch, read, stop, and the report."""

import array
import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trio
from attrs import evolve

from agentsdock.guard import orphans
from agentsdock.guard.contract import LaunchSpec, Report, SpawnFailed
from agentsdock.guard.process_guard import (
    LINUX,
    MARKER_VARIABLE,
    RUNG,
    become_subreaper,
)
from agentsdock.guard.procs import Process, helper_name, hold
from agentsdock.guard.wire import (
    Control,
    anonymous_file,
    job_of,
    keep,
    pipe,
    stdin_file,
)

ZYGOTE = Path(__file__).with_name("zygote.py")
STDOUT_PIPE_BYTES = 512 * 1024
HANDSHAKE_SECONDS = 10.0
EXIT_SECONDS = 1.0
OVERDUE_SECONDS = 0.25
CLEAR_SECONDS = 2.0
HURRIED_CLEAR_SECONDS = 0.5


class _NotTaken(Exception):
    """No guard took the job, so nothing was started and another zygote may be asked."""


class ZygoteProcess:
    """A CLI under a guard that the zygote forked.  Implements :class:`GuardedProcess`."""

    def __init__(
        self,
        launcher: "ZygoteLauncher",
        spec: LaunchSpec,
        control: socket.socket,
        stdout: int,
        stderr: int,
    ) -> None:
        self.pid = 0
        self.start_ticks: int | None = None
        self.guard_pid = 0
        self.guard_start: int | None = None
        self._launcher = launcher
        self._spec = spec
        self._control = Control(control)
        self._stdout = trio.lowlevel.FdStream(stdout)
        self._stderr = trio.lowlevel.FdStream(stderr)
        self._guard_fd: int | None = None
        self._stop_asked = False
        self._clear_seconds = CLEAR_SECONDS
        self._reading = trio.Lock()
        self._report: Report | None = None

    async def start(self) -> None:
        """Hear how the launch went.  Raises SpawnFailed or _NotTaken."""
        accepted = await self._control.next()
        if accepted is None:
            raise _NotTaken
        self.guard_pid = accepted["guard_pid"]
        self.guard_start = accepted["guard_start"]
        if LINUX:
            self._guard_fd = hold(self.guard_pid, self.guard_start)
        started = await self._control.next()
        if started is None:
            await self._clear()
            raise SpawnFailed("the guard was lost while it started the program")
        if started["type"] == "failed":
            raise SpawnFailed(started["message"], started["errno"])
        self.pid = started["pid"]
        self.start_ticks = started["start_ticks"]

    async def read_stdout(self, max_bytes: int) -> bytes:
        return bytes(await self._stdout.receive_some(max_bytes))

    async def read_stderr(self, max_bytes: int) -> bytes:
        return bytes(await self._stderr.receive_some(max_bytes))

    async def wait_report(self) -> Report:
        async with self._reading:
            if self._report is None:
                message = await self._control.next()
                self._report = await (self._lost() if message is None else self._told(message))
            return self._report

    async def _told(self, message: dict[str, Any]) -> Report:
        report = Report(
            exit_code=message["exit_code"],
            killed=message["killed"],
            processes_ended=message["processes_ended"],
            survivors=tuple(message["survivors"]),
            elapsed_ms=message["elapsed_ms"],
            cpu_seconds=message["cpu_seconds"],
            max_rss_bytes=message["max_rss_bytes"],
            rung=message["rung"],
        )
        if report.tree_empty:
            return report
        ended, survivors = await self._clear()
        return evolve(report, processes_ended=report.processes_ended + ended, survivors=survivors)

    async def _lost(self) -> Report:
        began = trio.current_time()
        ended, survivors = await self._clear()
        return self._lost_report(ended, survivors, trio.current_time() - began)

    async def _clear(self) -> tuple[int, tuple[int, ...]]:
        """End what has come to us from a guard that ended early; (processes ended, survivors).

        Its socket ends a moment before its children become ours, so its death is awaited.
        """
        if not await self._guard_gone():
            return 0, (self.guard_pid, self.pid)
        ended, survivors = await self._launcher.clear(
            self._spec.marker, self.guard_start, self._clear_seconds
        )
        return len([pid for pid in ended if pid != self.pid]), survivors

    def _lost_report(self, ended: int, survivors: tuple[int, ...], seconds: float) -> Report:
        return Report(
            exit_code=None,
            killed=self._stop_asked,
            processes_ended=ended,
            survivors=survivors,
            elapsed_ms=seconds * 1000,
            cpu_seconds=None,
            max_rss_bytes=None,
            rung=RUNG,
            guard_lost=True,
        )

    def request_stop(self) -> None:
        if not self._stop_asked:
            self._stop_asked = True
            self._control.ask_to_stop()

    async def end(self) -> Report:
        self.request_stop()
        bound = self._spec.grace + self._spec.teardown_grace + OVERDUE_SECONDS
        with trio.CancelScope(shield=True):
            with trio.move_on_after(bound):
                return await self.wait_report()
            self._clear_seconds = HURRIED_CLEAR_SECONDS
            self.kill_guard()
            with trio.move_on_after(OVERDUE_SECONDS + HURRIED_CLEAR_SECONDS):
                return await self.wait_report()
        return self._lost_report(0, (self.guard_pid, self.pid), bound)

    def kill_guard(self) -> None:
        """What it held comes to us then, and its control socket ends without a report."""
        with suppress(OSError):
            if self._guard_fd is not None:
                signal.pidfd_send_signal(self._guard_fd, signal.SIGKILL)
            elif not LINUX:
                os.kill(self.guard_pid, signal.SIGKILL)

    async def _guard_gone(self) -> bool:
        if self._guard_fd is None:
            return True
        with trio.move_on_after(EXIT_SECONDS) as scope:
            await trio.lowlevel.wait_readable(self._guard_fd)
        return not scope.cancelled_caught

    async def aclose(self) -> None:
        self._control.close()
        with trio.CancelScope(shield=True):
            await self._stdout.aclose()
            await self._stderr.aclose()
            await self._guard_gone()
        if self._guard_fd is not None:
            os.close(self._guard_fd)
            self._guard_fd = None
        self._launcher.reap()


def bytecode_options() -> list[str]:
    """Where an interpreter that reads no environment shall keep bytecode: where we keep ours."""
    if sys.dont_write_bytecode:
        return ["-B"]
    return [f"-Xpycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []


class _Zygote:
    """The running zygote and our end of its request socket."""

    def __init__(self, identity: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    *bytecode_options(),
                    str(ZYGOTE),
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={MARKER_VARIABLE: identity + helper_name()},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._requests = trio.socket.from_stdlib_socket(ours)
        self._sending = trio.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def send(self, descriptors: list[int]) -> None:
        """Hand a job to whichever guard is spare.  Raises _NotTaken."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            async with self._sending:
                await self._requests.sendmsg([b"j"], [rights])
        except (ConnectionError, trio.ClosedResourceError):
            raise _NotTaken from None
        except OSError:
            if self._requests.fileno() != -1:
                raise
            raise _NotTaken from None  # another launch found it dead and closed it

    async def close(self) -> None:
        """End it and its spare; running guards go on."""
        self._requests.close()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)  # what somebody stopped shall see the end too
        wait = partial(self._process.wait, EXIT_SECONDS)
        with suppress(subprocess.TimeoutExpired):
            await trio.to_thread.run_sync(wait)
            return
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            await trio.to_thread.run_sync(wait)


class ZygoteLauncher:
    """Starts guarded processes from one zygote.  An async context manager; see :class:`Launcher`.

    While it is open this process is the subreaper of last resort (Linux): a child of ours in a
    session that is neither ours nor a zygote's is an orphan of a dead guard.
    """

    rung = RUNG

    def __init__(self, identity: str = "agentsdock") -> None:
        """``identity`` begins the markers of the helpers and of what ``once`` starts.

        The boot sweep finds both where its prefix is ``identity`` and a colon.
        """
        self.identity = identity
        self._zygote: _Zygote | None = None
        self._sessions: set[int] = set()
        self._exclusive = trio.Lock()
        """A starting zygote must not be taken for an orphan."""

    async def __aenter__(self) -> Self:
        if LINUX:
            become_subreaper()
        await self._healthy_zygote()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with trio.CancelScope(shield=True):
            await self._drop_zygote()

    async def launch(self, spec: LaunchSpec) -> ZygoteProcess:
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True):
            failed: _Zygote | None = None
            for _ in range(2):
                zygote = await self._healthy_zygote(failed)
                try:
                    return await self._launch(zygote, spec)
                except _NotTaken:
                    failed = zygote
        raise SpawnFailed("no guard took the job: the program that forks them does not run")

    async def _healthy_zygote(self, failed: _Zygote | None = None) -> _Zygote:
        async with self._exclusive:
            if self._zygote is not None and (self._zygote is failed or not self._zygote.alive):
                await self._drop_zygote()
            if self._zygote is None:
                try:
                    self._zygote = _Zygote(self.identity)
                except OSError as error:
                    raise SpawnFailed(f"cannot start the guards: {error}", error.errno) from error
                self._sessions.add(self._zygote.pid)
            return self._zygote

    async def _drop_zygote(self) -> None:
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            await zygote.close()
            self.reap()

    async def _launch(self, zygote: _Zygote, spec: LaunchSpec) -> ZygoteProcess:
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                control, given = socket.socketpair()
                ours.callback(control.close)
                theirs.callback(given.close)
                job = keep(theirs, await anonymous_file(job_of(spec)))
                stdin = keep(theirs, await stdin_file(spec.stdin))
                stdout = pipe(ours, theirs, STDOUT_PIPE_BYTES)
                stderr = pipe(ours, theirs)
                await zygote.send([job, given.fileno(), stdin, stdout[1], stderr[1]])
            except (OSError, ValueError) as error:
                number = error.errno if isinstance(error, OSError) else errno.EINVAL
                raise SpawnFailed(f"cannot prepare the launch: {error}", number) from error
            process = ZygoteProcess(self, spec, control, stdout[0], stderr[0])
            ours.pop_all()
        try:
            await self._hear(process)
        except BaseException:
            await process.aclose()
            raise
        return process

    async def _hear(self, process: ZygoteProcess) -> None:
        try:
            with trio.fail_after(HANDSHAKE_SECONDS):
                await process.start()
        except trio.TooSlowError:
            if process.guard_pid == 0:  # a guard that wakes up later will see us gone
                raise _NotTaken from None
            await process.end()
            raise SpawnFailed("the guard did not answer in time") from None
        except OSError as error:
            await process.end()
            raise SpawnFailed(f"cannot hold the guard: {error}", error.errno) from error

    async def clear(
        self, marker: str, since: int | None, seconds: float
    ) -> tuple[list[int], tuple[int, ...]]:
        """End every orphan of a guard that began at ``since`` (clock ticks) and is gone now.

        Where orphans do not come to us (macOS) they are looked for by their marker.

        Returns what was killed and the pids that still lived after ``seconds``.
        """
        if not LINUX:
            return await trio.to_thread.run_sync(orphans.end_marked, marker, seconds)

        def left_by_a_guard(process: Process) -> bool:
            return process.session not in self._sessions and process.start_ticks >= (since or 0)

        async with self._exclusive:
            return await trio.to_thread.run_sync(orphans.end, left_by_a_guard, seconds)

    def reap(self) -> None:
        """Collect the zombies that came to us: orphans, and guards and spares of a dead zygote."""
        if LINUX:
            current = self._zygote.pid if self._zygote else 0
            orphans.reap(lambda process: process.pid != current)
            self._sessions &= {process.session for process in orphans.orphans()} | {current}
