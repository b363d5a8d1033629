"""A patch as files and lines to look at."""

import re
from collections.abc import Iterator

from attrs import define, field, frozen
from markupsafe import Markup

from agentsdock.web.page import visible
from agentsdock.web.page.markdown import highlighted, language_of

MAX_LINES = 4_000
"""Of one patch that are shown; the patch itself is a click away."""
MAX_LINE_CHARS = 1_000

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")


@frozen
class Line:
    """``kind`` is add, del, same, hunk or note."""

    kind: str
    old: int | None
    new: int | None
    html: Markup


@define
class FileDiff:
    path: str
    lines: list[Line] = field(factory=list)


@frozen
class Patch:
    files: list[FileDiff]
    lines_left: int


def read_patch(text: str) -> Patch:
    """What ``git diff`` writes, as far as MAX_LINES go."""
    lines = text.split("\n")
    files: list[FileDiff] = []
    for path, body in _files(lines[:MAX_LINES]):
        files.append(FileDiff(path, list(_lines(body, language_of(path)))))
    return Patch(files, max(len(lines) - 1 - MAX_LINES, 0))


def _files(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    starts = [at for at, line in enumerate(lines) if line.startswith("diff --git ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        body = lines[start + 1 : end]
        yield _path(lines[start], body), body


def _path(head: str, body: list[str]) -> str:
    named = [line[4:] for line in body[:8] if line.startswith(("--- ", "+++ "))]
    for name in reversed(named):
        plain = name.strip().strip('"').split("\t")[0]
        if plain != "/dev/null":
            return plain[2:] if plain[:2] in ("a/", "b/") else plain
    return head.removeprefix("diff --git ").partition(" b/")[2] or head


def _lines(body: list[str], language: str) -> Iterator[Line]:
    old = new = 0
    inside = False
    for line in body:
        hunk = _HUNK.match(line)
        if hunk is not None:
            inside = True
            old, new = int(hunk[1]), int(hunk[2])
            yield Line("hunk", None, None, visible.code(hunk[3]))
        elif not inside:
            if line.startswith(("Binary", "rename", "new file", "deleted", "old mode", "new mode")):
                yield Line("note", None, None, visible.code(line))
        elif line.startswith("+"):
            yield Line("add", None, new, _coloured(line[1:], language))
            new += 1
        elif line.startswith("-"):
            yield Line("del", old, None, _coloured(line[1:], language))
            old += 1
        elif line.startswith(" "):
            yield Line("same", old, new, _coloured(line[1:], language))
            old, new = old + 1, new + 1
        elif line:
            yield Line("note", None, None, visible.code(line.removeprefix("\\ ")))


def _coloured(text: str, language: str) -> Markup:
    """Line by line: a patch has no beginning to read from."""
    if len(text) > MAX_LINE_CHARS:
        return visible.code(f"{text[:MAX_LINE_CHARS]}…")
    return Markup(highlighted(text, language))  # noqa: S704
