"""Files on disk: ``files/<file id>/<name>`` in the state folder, for the server's user alone.

A file is whole before anybody is told of it.  What was not told of, because the server or the
client went away, is removed at once or at the next start.
"""

import errno
import fcntl
import os
import pathlib
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import BinaryIO

import trio
from attrs import frozen

from agentsdock.files.folders import open_private, sync_folder
from agentsdock.files.ranges import Span

FOLDER = "files"
WRITE_BYTES = 1024 * 1024
READ_BYTES = 256 * 1024
_FICLONE = 0x40049409
"""Of Linux; elsewhere it is an unknown request and fails."""
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class TooLarge(Exception):
    """More bytes came than a file may have."""


@frozen
class Storage:
    root: pathlib.Path

    @classmethod
    def of(cls, state_dir: pathlib.Path) -> "Storage":
        """Raises OSError for a folder that is a link or somebody else's."""
        root = state_dir / FOLDER
        os.close(open_private(root))
        sync_folder(state_dir)
        return cls(root)

    async def write(
        self, file_id: str, name: str, chunks: AsyncGenerator[bytes, None], limit: int
    ) -> tuple[pathlib.Path, int]:
        """Write a new file to its end and to the disk; where it is, and its size.

        Leaves nothing when it fails.  Raises TooLarge and OSError, and what ``chunks`` raises.
        """
        return await self._make(file_id, name, lambda file: _pour(chunks, file, limit))

    async def clone(self, source: str, file_id: str) -> tuple[pathlib.Path, int]:
        """An independent copy of a stored file, likewise.  Raises OSError."""
        original = await trio.to_thread.run_sync(_open, source)
        try:
            name = pathlib.Path(source).name
            return await self._make(file_id, name, lambda file: _copy(original, file))
        finally:
            os.close(original)

    async def _make(
        self, file_id: str, name: str, fill: Callable[[BinaryIO], Awaitable[int]]
    ) -> tuple[pathlib.Path, int]:
        path = self.root / file_id / name
        try:
            file = await trio.to_thread.run_sync(_create, path)
            try:
                size = await fill(file)
                await trio.to_thread.run_sync(_finish, file, path)
            finally:
                file.close()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.remove(file_id)
            raise
        return path, size

    async def remove(self, file_id: str) -> None:
        """A folder that cannot be removed now is removed at the next start."""
        await trio.to_thread.run_sync(_remove, self.root / file_id)

    def names(self) -> list[str]:
        """The ids of all files on disk, finished or not."""
        try:
            return os.listdir(self.root)
        except FileNotFoundError:
            return []


async def read(path: str, span: Span) -> AsyncGenerator[bytes, None]:
    """The bytes of a span, in pieces.  Raises OSError."""
    file = await trio.to_thread.run_sync(_open, path)
    try:
        async with aclosing(_pieces(file, span)) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        os.close(file)


async def _pieces(file: int, span: Span) -> AsyncGenerator[bytes, None]:
    at = span.first
    while at < span.end:
        piece = await trio.to_thread.run_sync(os.pread, file, min(READ_BYTES, span.end - at), at)
        if not piece:
            raise OSError("the file is shorter than it was")
        at += len(piece)
        yield piece


async def size_of(path: str) -> int:
    """Raises OSError."""
    return (await trio.to_thread.run_sync(os.stat, path)).st_size


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _create(path: pathlib.Path) -> BinaryIO:
    path.parent.mkdir(mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o600), "wb", buffering=0)


async def _pour(chunks: AsyncGenerator[bytes, None], file: BinaryIO, limit: int) -> int:
    size = 0
    waiting = bytearray()
    async with aclosing(chunks):
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise TooLarge
            waiting += chunk
            if len(waiting) >= WRITE_BYTES:
                await trio.to_thread.run_sync(_write, file, bytes(waiting))
                waiting.clear()
    await trio.to_thread.run_sync(_write, file, bytes(waiting))
    return size


def _write(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _finish(file: BinaryIO, path: pathlib.Path) -> None:
    os.fsync(file.fileno())
    sync_folder(path.parent)
    sync_folder(path.parent.parent)


async def _copy(original: int, file: BinaryIO) -> int:
    size = os.fstat(original).st_size
    if not await trio.to_thread.run_sync(_share, original, file):
        await _pour(_pieces(original, Span(0, size)), file, size)
    return size


def _share(original: int, file: BinaryIO) -> bool:
    """Let both files have the same blocks until one is written to; whether that can be done."""
    try:
        fcntl.ioctl(file.fileno(), _FICLONE, original)
    except OSError:
        return False
    return True


def _remove(folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
