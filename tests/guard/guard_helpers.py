"""What the guard's tests share: specs, small programs, and who is still alive."""

import os
import sys
from collections.abc import Callable

import trio

from agentsdock.guard.contract import LaunchSpec
from agentsdock.guard.handle import ZygoteProcess
from agentsdock.guard.process_guard import start_ticks
from agentsdock.guard.procs import look

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

PRELUDE = """
import os, signal, sys, time

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def me():
    signal.alarm(120)  # a failed test costs the machine no more than that
    with open("/proc/self/stat") as f:
        return os.getpid(), f.read().rsplit(")", 1)[1].split()[19]

def daemon(ignore_term=False, bare=False):
    # A double-forked process in a session of its own that says who it is.
    done_r, done_w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.setsid()
        if ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("process", *me())
        os.write(done_w, b"x")
        if bare:
            os.execve("/bin/sleep", ["sleep", "600"], {})
        forever()
    os.wait()
    os.read(done_r, 1)

def child():
    # A plain child that ignores SIGTERM.
    ready_r, ready_w = os.pipe()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("process", *me())
        os.write(ready_w, b"x")
        forever()
    os.read(ready_r, 1)

def forever():
    while True:
        signal.pause()

say("process", *me())
"""


def python(program: str, *args: str, **changes: object) -> LaunchSpec:
    """A small program with the prelude's helpers, run by a bare interpreter."""
    argv = (sys.executable, "-I", "-S", "-c", PRELUDE + program, *args)
    return spec(*argv, **changes)


def spec(*argv: str, **changes: object) -> LaunchSpec:
    fields: dict[str, object] = {"env": ENV, "cwd": "/", "marker": "test:run", "grace": 0.3}
    return LaunchSpec(argv, **(fields | changes))  # type: ignore[arg-type]


class Story:
    """A program's own words, line by line, and the processes that it told of."""

    def __init__(self, process: ZygoteProcess) -> None:
        self.lines: list[str] = []
        self.processes: list[tuple[int, int]] = []
        self._process = process
        self._rest = b""

    async def until(self, word: str) -> str:
        """Read until a line that begins so; returns the line.  Fails at end of file."""
        with trio.fail_after(20):
            while True:
                line, found, rest = self._rest.partition(b"\n")
                if not found:
                    data = await self._process.read_stdout(65536)
                    assert data, f"no {word!r} in {self.lines}"
                    self._rest += data
                    continue
                self._rest = rest
                text = line.decode()
                self.lines.append(text)
                if text.startswith("process "):
                    _, pid, began = text.split()
                    self.processes.append((int(pid), int(began)))
                if text.startswith(word):
                    return text

    def survivors(self) -> list[int]:
        return [pid for pid, began in self.processes if is_alive(pid, began)]


def is_alive(pid: int, began: int | None) -> bool:
    process = look(pid)
    return process is not None and process.start_ticks == began and not process.dead


async def gone(pid: int, began: int | None, seconds: float = 5.0) -> bool:
    """Wait until that process has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if start_ticks(pid) != began:
            return True
        with trio.move_on_after(seconds):
            await trio.lowlevel.wait_readable(pidfd)
        return not is_alive(pid, began)
    finally:
        os.close(pidfd)


async def finish(process: ZygoteProcess) -> None:
    await process.end()
    await process.aclose()


async def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """For what only the kernel's process table tells and no descriptor announces."""
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.005)


def open_descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))
