"""Files on disk: ``files/<file id>/<name>`` in the state folder, for the server's user alone.

A file is whole before anybody is told of it.  What was not told of, because the server or the
client went away, is removed at once or at the next start.
"""

import errno
import os
import pathlib
import shutil
from collections.abc import AsyncIterator
from typing import BinaryIO

import trio
from attrs import frozen

from agentsdock.files.ranges import Span

FOLDER = "files"
WRITE_BYTES = 1024 * 1024
READ_BYTES = 256 * 1024
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class TooLarge(Exception):
    """More bytes came than a file may have."""


@frozen
class Storage:
    root: pathlib.Path

    @classmethod
    def of(cls, state_dir: pathlib.Path) -> "Storage":
        return cls(state_dir / FOLDER)

    async def write(
        self, file_id: str, name: str, chunks: AsyncIterator[bytes], limit: int
    ) -> tuple[pathlib.Path, int]:
        """Write a new file to its end and to the disk; where it is, and its size.

        Leaves nothing when it fails.  Raises TooLarge and OSError, and what ``chunks`` raises.
        """
        path = self.root / file_id / name
        try:
            file = await trio.to_thread.run_sync(_create, path)
            try:
                size = await _pour(chunks, file, limit)
                await trio.to_thread.run_sync(_finish, file, path)
            finally:
                file.close()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.remove(file_id)
            raise
        return path, size

    async def clone(self, source: str, file_id: str) -> tuple[pathlib.Path, int]:
        """An independent copy of a stored file.  Raises OSError."""
        path = self.root / file_id / pathlib.Path(source).name
        try:
            size = await trio.to_thread.run_sync(_clone, source, path)
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


async def read(path: str, span: Span) -> AsyncIterator[bytes]:
    """The bytes of a span, in pieces.  Raises OSError."""
    file = await trio.to_thread.run_sync(_open, path)
    try:
        at = span.first
        while at < span.end:
            piece = await trio.to_thread.run_sync(
                os.pread, file, min(READ_BYTES, span.end - at), at
            )
            if not piece:
                raise OSError(f"{path} is shorter than it was")
            at += len(piece)
            yield piece
    finally:
        os.close(file)


async def size_of(path: str) -> int:
    """Raises OSError."""
    return (await trio.to_thread.run_sync(os.stat, path)).st_size


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _create(path: pathlib.Path) -> BinaryIO:
    path.parent.parent.mkdir(mode=0o700, exist_ok=True)
    path.parent.mkdir(mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return open(os.open(path, flags, 0o600), "wb", buffering=0)


async def _pour(chunks: AsyncIterator[bytes], file: BinaryIO, limit: int) -> int:
    size = 0
    waiting = bytearray()
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
    for folder in (path.parent, path.parent.parent):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _clone(source: str, path: pathlib.Path) -> int:
    with open(_open(source), "rb") as original, _create(path) as copy:
        shutil.copyfileobj(original, copy, WRITE_BYTES)
        _finish(copy, path)
        return os.fstat(copy.fileno()).st_size


def _remove(folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
