"""Cutting what a CLI says down to its bounds.  Every cut is announced where it was made.

All limits are characters; a result, marker included, never exceeds its limit.
"""

from collections.abc import Iterable
from io import StringIO
from itertools import islice
from typing import Any

NAME_CHARS = 240
_ITEMS = 100
_DEPTH = 32
_SHORT = 800
_SCALAR_COST = 8
_PATHS = 1000
_PATH_CHARS = 4096


def head(text: str, limit: int, chars: int | None = None) -> str:
    """The first ``limit`` characters; ``chars`` is the true length if ``text`` is a part."""
    chars = len(text) if chars is None else chars
    if chars <= limit:
        return text
    marker = f"\n[trimmed: the start of {chars} characters]"
    return (text[: max(limit - len(marker), 0)] + marker)[:limit]


def tail(text: str, limit: int) -> str:
    """The last ``limit`` characters, behind a line that says what is missing."""
    if len(text) <= limit:
        return text
    marker = f"[trimmed: the end of {len(text)} characters]\n"
    kept = max(limit - len(marker), 0)
    return (marker + text[len(text) - kept :])[:limit]


def name(text: str, limit: int = NAME_CHARS) -> str:
    """A name on one line of a page: cut with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def tool_input(value: Any, limit: int) -> dict[str, Any]:
    """A tool's decoded JSON arguments as an object of about ``limit`` characters.

    Anything but an object is wrapped as ``{"value": ...}``.  Lists and objects keep 100
    items, keys 240 characters, nesting 32 levels.
    """
    bounded: dict[str, Any] = _Budget(limit).bound(
        value if isinstance(value, dict) else {"value": value}, _DEPTH
    )
    return bounded


def paths(told: Iterable[Any]) -> tuple[str, ...]:
    """The usable paths among the values where a call names its files, at most 1,000."""
    usable = (path for path in told if isinstance(path, str) and 0 < len(path) <= _PATH_CHARS)
    return tuple(islice((path for path in usable if "\0" not in path), _PATHS))


def fits(json: bytes, limit: int) -> bool:
    """Whether arguments may stay as they are: short, and not nested too deeply.

    A level of nesting takes two characters, so what is very short needs no second look.
    """
    size = len(json)
    return size <= _SHORT or (size <= limit and json.count(b"[") + json.count(b"{") <= _DEPTH)


class _Budget:
    def __init__(self, limit: int) -> None:
        self._left = limit

    def bound(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict | list):
            if depth == 0:
                return self._text("[trimmed: nested too deeply]")
            return (
                self._object(value, depth) if isinstance(value, dict) else self._list(value, depth)
            )
        self._left -= _SCALAR_COST
        return value

    def _text(self, value: str) -> str:
        kept = head(value, max(self._left, 0)) or f"[trimmed: {len(value)} characters]" * bool(
            value
        )
        self._left -= len(kept)
        return kept

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            key = name(key)
            if len(kept) == _ITEMS or self._left <= 0 or key in kept:
                continue
            self._left -= len(key)
            kept[key] = self.bound(item, depth - 1)
        if len(kept) < len(value):
            kept["[trimmed]"] = f"{len(value) - len(kept)} more keys"
        return kept

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        kept: list[Any] = []
        for count, item in enumerate(value):
            if count == _ITEMS or self._left <= 0:
                kept.append(f"[trimmed: {len(value) - count} more items]")
                break
            kept.append(self.bound(item, depth - 1))
        return kept


class Joiner:
    """Joins pieces of one text and holds no more than the first ``limit`` characters."""

    def __init__(self, limit: int) -> None:
        self.chars = 0
        self._limit = limit
        self._held = StringIO()

    def add(self, piece: str) -> None:
        room = self._limit - self.chars
        if room > 0:
            self._held.write(piece if len(piece) <= room else piece[:room])
        self.chars += len(piece)

    def text(self) -> str:
        """What was joined, with its marker if something had to go."""
        return head(self._held.getvalue(), self._limit, self.chars)

    def clear(self) -> None:
        self.chars = 0
        self._held = StringIO()
