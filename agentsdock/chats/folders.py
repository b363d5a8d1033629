"""Completes the path of a folder on this machine, as a shell would."""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from typing import Any

import trio

from agentsdock.model.errors import BadRequest

MOST_RESULTS = 50
MOST_SCANNED = 20_000
SCAN_SECONDS = 5.0
_scanning = trio.CapacityLimiter(4)


async def complete(path: str, limit: int, home: str) -> dict[str, Any]:
    """Folders that begin as ``path`` does: one shallow, bounded look.

    A relative path is one in ``home``.  Names with a leading dot are given only where the path
    asks for one.  Raises BadRequest for a path that cannot be one.
    """
    told, prefix = _asked(path, home)
    with trio.move_on_after(SCAN_SECONDS):
        found = await trio.to_thread.run_sync(
            _look, told, prefix, limit, abandon_on_cancel=True, limiter=_scanning
        )
        return {**told, **found}
    return {**told, "message": "this folder takes too long to read"}


def _asked(path: str, home: str) -> tuple[dict[str, Any], str]:
    """The answer as far as the path alone tells it, and how a name has to begin."""
    if "\0" in path:
        raise BadRequest("a path holds no NUL character")
    expanded = os.path.join(home, os.path.expanduser(path))
    base, prefix = os.path.split(expanded)
    told: dict[str, Any] = {
        "input": path,
        "resolved_path": os.path.normpath(expanded),
        "exists": False,
        "base_path": os.path.normpath(base),
        "suggestions": [],
        "truncated": False,
        "message": None,
    }
    return told, prefix


def _look(told: dict[str, Any], prefix: str, limit: int) -> dict[str, Any]:
    try:
        exists = os.path.isdir(told["resolved_path"])
        with os.scandir(told["base_path"]) as entries:
            scanned = list(islice(entries, MOST_SCANNED + 1))
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path of this machine"
        return {"message": f"{told['base_path']} cannot be read: {reason}"}
    folders = list(_folders(scanned[:MOST_SCANNED], prefix))
    return {
        "exists": exists,
        "suggestions": sorted(folders, key=_by_name)[:limit],
        "truncated": len(folders) > limit or len(scanned) > MOST_SCANNED,
    }


def _folders(entries: "list[os.DirEntry[str]]", prefix: str) -> Iterator[dict[str, Any]]:
    wanted = prefix.casefold()
    for entry in entries:
        name = entry.name
        hidden = name.startswith(".") and not prefix.startswith(".")
        if not hidden and name.casefold().startswith(wanted) and _is_told(name):
            linked = entry.is_symlink()
            if _is_folder(entry):
                path = os.path.join(entry.path, "")
                yield {"name": name, "path": path, **({"symlink": True} if linked else {})}


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return stat.S_ISDIR(entry.stat().st_mode) if entry.is_symlink() else entry.is_dir()
    except OSError:
        return False


def _is_told(name: str) -> bool:
    """Whether JSON can hold the name."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _by_name(folder: dict[str, Any]) -> tuple[str, str]:
    return folder["name"].casefold(), folder["name"]
