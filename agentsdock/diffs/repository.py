"""Where the git repository around a folder is: found by looking, without a process."""

import os
import stat

from attrs import frozen

_MARK = ".git"
_POINTER = b"gitdir: "
_POINTER_BYTES = 8192


@frozen
class Repository:
    """A work tree and its git folders, as absolute paths.

    ``git_dir`` holds the index of this work tree, ``common_dir`` objects and configuration; they
    differ in a linked work tree.  ``foreign`` says that another user owns one of them.
    """

    root: str
    git_dir: str
    common_dir: str
    foreign: bool


def find(folder: str) -> Repository | None:
    """The repository whose work tree holds the folder; None where there is none.

    Blocks for a few file system look-ups.
    """
    root = os.path.realpath(folder)
    while True:
        git_dir = _git_dir(root)
        if git_dir is not None:
            common = _pointed_to(os.path.join(git_dir, "commondir"), git_dir) or git_dir
            return Repository(root, git_dir, common, _is_foreign(root, git_dir))
        parent = os.path.dirname(root)
        if parent == root:
            return None
        root = parent


def _git_dir(root: str) -> str | None:
    mark = os.path.join(root, _MARK)
    try:
        kind = os.stat(mark).st_mode
    except OSError:
        return None
    found = mark if stat.S_ISDIR(kind) else _pointed_to(mark, root, _POINTER)
    return found if found and os.path.isfile(os.path.join(found, "HEAD")) else None


def _pointed_to(file: str, base: str, prefix: bytes = b"") -> str | None:
    """The folder that a one-line file names, relative to ``base``."""
    if not os.path.isfile(file):
        return None
    try:
        with open(file, "rb") as opened:
            line = opened.read(_POINTER_BYTES)
    except OSError:
        return None
    if not line.startswith(prefix):
        return None
    named = os.fsdecode(line[len(prefix) :].rstrip(b"\r\n"))
    return os.path.realpath(os.path.join(base, named)) if named else None


def _is_foreign(root: str, git_dir: str) -> bool:
    user = os.geteuid()
    places = (root, os.path.join(root, _MARK), git_dir)
    return any(os.lstat(place).st_uid != user for place in places)


class Boundaries:
    """Which paths of a work tree belong to another repository inside of it."""

    def __init__(self, root: bytes) -> None:
        self._inside = {root: False}

    def cross(self, folder: bytes) -> bool:
        """Whether a folder below the root is in, or is, a repository of its own."""
        known = self._inside.get(folder)
        if known is None:
            own = os.path.lexists(os.path.join(folder, os.fsencode(_MARK)))
            known = own or self.cross(os.path.dirname(folder))
            self._inside[folder] = known
        return known
