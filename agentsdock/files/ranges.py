"""The ``Range`` header.  Pure."""

import re

from attrs import frozen

_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@frozen
class Span:
    """Bytes from ``first`` up to and without ``end``."""

    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first


class NotSatisfiable(Exception):
    """The range lies behind the end of the file."""


def wanted_span(header: str | None, size: int) -> Span | None:
    """The one span that is asked for; None for the whole file.

    Several ranges at once, other units and nonsense are answered with the whole, as HTTP
    allows.  Raises NotSatisfiable.
    """
    match = _RANGE.fullmatch((header or "").strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        length = int(last)
        if length == 0 or size == 0:
            raise NotSatisfiable
        return Span(max(0, size - length), size)
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        raise NotSatisfiable
    return Span(start, min(size, int(last) + 1) if last else size)
