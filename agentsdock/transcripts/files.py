"""Where the CLIs keep their transcripts, and their lines.

Blocking; for a worker thread.  Links are not followed, and a search looks at a bounded number
of names.
"""

import os
import pathlib
import re
import stat
from collections.abc import Iterator

from agentsdock.transcripts.reading import MAX_LINE_BYTES

MOST_NAMES = 50_000
_READ_BYTES = 1024 * 1024


def claude_folder(root: pathlib.Path, cwd: str) -> pathlib.Path:
    """The folder that Claude Code names after a session's working directory."""
    return root / re.sub(r"[^A-Za-z0-9]", "-", os.path.realpath(cwd))


def find_claude(root: pathlib.Path, session_id: str, cwd: str | None = None) -> pathlib.Path | None:
    """The transcript written to last, of one working directory or of all."""
    name = f"{session_id}.jsonl"
    folders = [claude_folder(root, cwd)] if cwd else list(_folders(root))
    return _newest(folder / name for folder in folders)


def find_codex(root: pathlib.Path, thread_id: str) -> pathlib.Path | None:
    """The transcript written to last among those whose name ends with the id."""
    ending = f"-{thread_id}.jsonl"
    found = (
        pathlib.Path(file.path)
        for year in _folders(root)
        for month in _folders(year)
        for day in _folders(month)
        for file in _names(day)
        if file.name.endswith(ending)
    )
    return _newest(found)


def _folders(parent: pathlib.Path) -> Iterator[pathlib.Path]:
    for entry in _names(parent):
        if entry.is_dir(follow_symlinks=False):
            yield pathlib.Path(entry.path)


def _names(folder: pathlib.Path) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= MOST_NAMES:
                    return
                yield entry
    except OSError:
        return


def _newest(paths: Iterator[pathlib.Path]) -> pathlib.Path | None:
    best: tuple[int, int, str] | None = None
    for path in paths:
        try:
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            mark = (found.st_mtime_ns, found.st_size, str(path))
            best = mark if best is None else max(best, mark)
    return None if best is None else pathlib.Path(best[2])


def lines(path: pathlib.Path) -> Iterator[bytes | None]:
    """Each complete line; None for one that is too long.  Raises OSError.

    A last line without its end is being written still, or was torn: it is left out.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=_READ_BYTES) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        while line := file.readline(MAX_LINE_BYTES):
            if line.endswith(b"\n"):
                yield line
                continue
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES)
            if len(line) == MAX_LINE_BYTES:
                yield None
