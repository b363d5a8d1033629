"""The process table as this program may read it (Linux)."""

import os

from attrs import frozen

from agentsdock.guard.process_guard import (
    MARKER_VARIABLE,
    read_bytes,
    start_ticks,
    stat_fields,
)


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
    _, found, rest = (b"\0" + environment).partition(b"\0" + name)
    return os.fsdecode(rest.partition(b"\0")[0]) if found else ""


def last_pid() -> int:
    """The number that was given to a process last."""
    return int(read_bytes("/proc/loadavg").split()[-1])


def helper_name() -> str:
    """What ends the marker of this life's zygote, its spare and its guards."""
    return f":zygote-{os.getpid()}-{start_ticks(os.getpid())}"


def own_line() -> set[int]:
    """This process and its ancestors, which are never to be ended."""
    line: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        process = look(pid)
        pid = process.parent if process else 0
    return line


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
