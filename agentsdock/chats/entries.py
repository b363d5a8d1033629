"""What an agent says of the files that it hands out.  Pure."""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from agentsdock.model.errors import Unprocessable

MAX_FILES = 64
MAX_PATH_CHARS = 4096
MAX_TITLE_CHARS = 1000
MAX_TEXT_CHARS = 12_000
_LIMITS = {"path": MAX_PATH_CHARS, "title": MAX_TITLE_CHARS, "text": MAX_TEXT_CHARS}


@frozen
class Entry:
    """One file of a publication."""

    path: str
    title: str | None = None
    text: str | None = None


def read_entries(items: Sequence[str | dict[str, Any]]) -> tuple[Entry, ...]:
    """The entries of a list of paths, or of objects of path, title and text.

    Raises Unprocessable.
    """
    if not 1 <= len(items) <= MAX_FILES:
        raise _refused(f"1 to {MAX_FILES} files, not {len(items)}")
    entries = tuple(_entry(item) for item in items)
    if len({entry.path for entry in entries}) != len(entries):
        raise _refused("each path once")
    return entries


def _entry(item: str | dict[str, Any]) -> Entry:
    fields = {"path": item} if isinstance(item, str) else item
    if set(fields) - set(_LIMITS):
        raise _refused("only path, title and text")
    for name, value in fields.items():
        if name != "path" and value is None:
            continue
        if not isinstance(value, str) or len(value) > _LIMITS[name] or "\0" in value:
            raise _refused(f"{name}: a text of at most {_LIMITS[name]} characters")
    path = fields.get("path")
    if not path or not path.startswith("/"):
        raise _refused("absolute paths")
    return Entry(path, fields.get("title"), fields.get("text"))


def _refused(message: str) -> Unprocessable:
    return Unprocessable(message, loc=("body", "files"))
