"""Which files of a work tree are looked at, and why others are not."""

import os
import stat
from collections.abc import Iterable
from enum import StrEnum

from attrs import field, frozen

from agentsdock.diffs.repository import Boundaries

FILE_BYTES = 32 * 1024 * 1024
"""The largest file whose content is kept for comparison."""
TOTAL_BYTES = 32 * 1024 * 1024
"""What a snapshot keeps at most of files that the index does not know as they are."""


class Why(StrEnum):
    """Why a file that the agent edited is not in the diff."""

    OUTSIDE = "outside_repository"
    NESTED = "nested_repository"
    NO_FILE = "not_a_file"
    TOO_LARGE = "too_large"
    IGNORED = "ignored"
    ASSUMED = "assumed_unchanged"
    FILTERED = "filtered"


@frozen
class Selection:
    """Paths below the root, and those left out with the reason.  Both as bytes."""

    taken: list[bytes] = field(factory=list)
    left_out: dict[bytes, Why] = field(factory=dict)


def worth_keeping(root: bytes, listed: Iterable[bytes], free_bytes: int) -> Selection:
    """Of changed, deleted and untracked files those to keep: small ones first.  Blocks."""
    found = Selection()
    sizes: list[tuple[int, bytes]] = []
    for path in listed:
        size = _size(os.path.join(root, path))
        if _is_gits_own(path) or size is None:
            found.left_out[path] = Why.NO_FILE
        else:
            sizes.append((size, path))
    left = min(TOTAL_BYTES, free_bytes)
    for size, path in sorted(sizes):
        left -= size
        if size > FILE_BYTES or left < 0:
            found.left_out[path] = Why.TOO_LARGE
        else:
            found.taken.append(path)
    return found


def edited(root: bytes, folder: str, told: Iterable[str], unknown: dict[bytes, Why]) -> Selection:
    """Of the files that the agent named, from ``folder``, those to compare.  Blocks.

    ``unknown`` are those that the snapshot had left out.
    """
    found = Selection()
    boundaries = Boundaries(root)
    for path in dict.fromkeys(_real(folder, name) for name in told):
        below = path.removeprefix(root.rstrip(b"/") + b"/")
        reason = _reason(root, path, below, boundaries) or unknown.get(below)
        if reason is not None:
            found.left_out[below] = reason
        else:
            found.taken.append(below)
    return found


def _reason(root: bytes, path: bytes, below: bytes, boundaries: Boundaries) -> Why | None:
    if below == path or _is_gits_own(below):
        return Why.OUTSIDE
    if boundaries.cross(os.path.dirname(path)):
        return Why.NESTED
    size = _size(path)
    if size is None:
        return Why.NO_FILE
    return Why.TOO_LARGE if size > FILE_BYTES else None


def _real(folder: str, name: str) -> bytes:
    """Where a file really lies; a link counts as itself, the folders before it do not."""
    joined = os.path.join(os.fsencode(folder), _bytes(name.removeprefix("file://")))
    parent, last = os.path.split(joined.rstrip(b"/"))
    if last in (b"", b".", b".."):
        return os.path.realpath(joined)
    return os.path.join(os.path.realpath(parent), last)


def _bytes(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _size(path: bytes) -> int | None:
    """Of a readable file, a link, or what is not there (0); None for anything else."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return 0
    if stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK):
        return status.st_size
    return None


def _is_gits_own(path: bytes) -> bool:
    return b".git" in path.lower().split(b"/")
