"""Folders in the state folder that are the server's alone."""

import errno
import os
import pathlib
from contextlib import suppress

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(folder: pathlib.Path) -> int:
    """Open a folder, made where there is none; for its owner only, from now on.

    Raises OSError for one that is a link or somebody else's.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    descriptor = os.open(folder, _FLAGS)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "not ours", str(folder))
        os.fchmod(descriptor, 0o700)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync_folder(folder: pathlib.Path) -> None:
    """Make durable which names a folder holds.  Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
