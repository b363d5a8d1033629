"""Files of a workspace that an agent hands out, opened so that no link leads elsewhere."""

import errno
import hashlib
import os
import pathlib
import stat
from collections.abc import AsyncGenerator

import trio
from attrs import frozen

READ_BYTES = 1024 * 1024


class NotPublishable(Exception):
    """A path that must not be handed out; the message says why, for the agent."""


@frozen
class Source:
    """An open file, and how it was when it was opened."""

    path: str
    descriptor: int
    size: int
    changed_ns: int

    @property
    def name(self) -> str:
        return pathlib.PurePath(self.path).name

    def close(self) -> None:
        os.close(self.descriptor)


def open_source(path: str, work_folder: str, private: pathlib.Path) -> Source:
    """Open a plain file without following a link in any part of its path.  Blocking.

    Below the work folder only what the agent can have made is looked at; the way to that
    folder is the operator's.  Raises NotPublishable.
    """
    pure = pathlib.PurePath(path)
    if not pure.is_absolute() or ".." in pure.parts:
        raise NotPublishable(f"{path} is not an absolute path")
    base, parts = _split(pure, work_folder)
    if not parts:
        raise NotPublishable(f"{path} is a folder")
    try:
        descriptor = open_below(base, parts)
    except OSError as error:
        raise NotPublishable(f"{path} cannot be opened: {error.strerror}") from error
    try:
        return _checked(path, descriptor, private)
    except BaseException:
        os.close(descriptor)
        raise


def open_below(base: str, parts: tuple[str, ...]) -> int:
    """Open a plain file at a path below a folder, following no link.

    What is no plain file is looked at and not opened: opening alone does something to a device.
    Raises OSError.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    folder = os.open(base, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        return os.open(parts[-1], flags, dir_fd=folder)
    finally:
        os.close(folder)


def _split(path: pathlib.PurePath, work_folder: str) -> tuple[str, tuple[str, ...]]:
    if path.is_relative_to(work_folder):
        return os.path.realpath(work_folder), path.relative_to(work_folder).parts
    return path.anchor, path.parts[1:]


def _checked(path: str, descriptor: int, private: pathlib.Path) -> Source:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise NotPublishable(f"{path} is not a plain file")
    if found.st_nlink > 1:
        raise NotPublishable(f"{path} has another name elsewhere (a hard link)")
    if pathlib.Path(_opened_path(path, descriptor)).is_relative_to(private.resolve()):
        raise NotPublishable(f"{path} belongs to the server")
    return Source(path, descriptor, found.st_size, found.st_mtime_ns)


def _opened_path(path: str, descriptor: int) -> str:
    """Where the open file lies, whatever its path leads to by now (Linux)."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


async def read_source(source: Source, digest: "hashlib._Hash") -> AsyncGenerator[bytes, None]:
    """Its bytes, also taken into ``digest``.  Raises NotPublishable if it changes meanwhile."""
    at = 0
    while piece := await trio.to_thread.run_sync(_read_piece, source.descriptor, at, digest):
        at += len(piece)
        yield piece
    found = os.fstat(source.descriptor)
    if at != source.size or (found.st_size, found.st_mtime_ns) != (at, source.changed_ns):
        raise NotPublishable(f"{source.path} changed while it was copied")


def _read_piece(descriptor: int, at: int, digest: "hashlib._Hash") -> bytes:
    piece = os.pread(descriptor, READ_BYTES, at)
    digest.update(piece)
    return piece
