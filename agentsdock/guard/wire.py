"""What passes between the server and a guard: control lines, the job, and descriptors."""

import fcntl
import json
import marshal
import os
import socket
import tempfile
from contextlib import ExitStack, suppress
from typing import Any

import trio

from agentsdock.guard.contract import LaunchSpec
from agentsdock.guard.process_guard import LINUX, MARKER_VARIABLE

INLINE_FILE_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024


class Control:
    """The control socket: JSON lines from the guard, stop requests to it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._buffer = b""

    async def next(self) -> dict[str, Any] | None:
        """The next line; None when the guard has gone.  Cancelling loses nothing."""
        await trio.lowlevel.checkpoint()
        while b"\n" not in self._buffer:
            try:
                data = self._sock.recv(READ_BYTES)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
                continue
            except ConnectionError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def ask_to_stop(self) -> None:
        with suppress(OSError):  # a guard that has gone needs no asking
            self._sock.send(b"s")

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()


def keep(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def pipe(ours: ExitStack, theirs: ExitStack, size: int | None = None) -> tuple[int, int]:
    """A pipe that we read and the CLI writes; ``size`` in bytes is a wish."""
    reader, writer = os.pipe()
    keep(ours, reader)
    keep(theirs, writer)
    if size is not None and LINUX:
        with suppress(OSError):  # beyond the user's share of pipe memory
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)
    return reader, writer


def job_of(spec: LaunchSpec) -> bytes:
    """The guard's orders; ``process_guard`` says what they are.

    Raises ValueError for text that has no bytes (a lone surrogate).
    """
    environment = dict(spec.env) | {MARKER_VARIABLE: spec.marker}
    return marshal.dumps(
        {
            "argv": [os.fsencode(word) for word in spec.argv],
            "env": {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
            "cwd": os.fsencode(spec.cwd),
            "marker": spec.marker,
            "stop_signals": spec.stop_signals,
            "grace": spec.grace,
            "teardown_grace": spec.teardown_grace,
            "background": spec.background,
        }
    )


async def stdin_file(data: bytes | None) -> int:
    return os.open(os.devnull, os.O_RDONLY) if data is None else await anonymous_file(data)


async def anonymous_file(data: bytes) -> int:
    """A file without a name that holds the data, at its beginning: it needs no writer task."""
    if len(data) > INLINE_FILE_BYTES:
        return await trio.to_thread.run_sync(_write_file, data)
    return _write_file(data)


def _write_file(data: bytes) -> int:
    if LINUX:
        fd = os.memfd_create("agentsdock")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd
