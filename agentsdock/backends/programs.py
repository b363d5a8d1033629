"""Programs on disk: found on a PATH, resolved, and known again later."""

import os
import shutil

from attrs import frozen


@frozen
class Program:
    """An executable file behind all links.  ``modified_ns`` is its mtime."""

    path: str
    device: int
    inode: int
    modified_ns: int

    @property
    def name(self) -> str:
        """What may be shown of it."""
        return os.path.basename(self.path)

    def unchanged(self) -> bool:
        """Whether the same file is still there and may still be run."""
        return os.access(self.path, os.X_OK) and identify(self.path) == self


def identify(path: str) -> Program | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Program(path, found.st_dev, found.st_ino, found.st_mtime_ns)


def find(name: str, path: str) -> Program | None:
    """The program that ``name`` (or a path) means on this PATH, links resolved.

    A CLI that updates itself moves its link: the file that was looked at is what must run.
    """
    found = shutil.which(os.path.expanduser(name), path=path)
    return identify(os.path.realpath(found)) if found else None
