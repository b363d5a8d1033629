"""Characters that deceive or act: shown as what they are."""

import re

from markupsafe import Markup, escape

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_NEVER = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufff9-\ufffb"
    r"\U000e0000-\U000e007f"
)
# Persian, Indian scripts and emoji need the joiners in prose, right-to-left scripts the marks.
_IN_CODE = (
    r"\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u3164\ufeff\uffa0"
)
_DECEPTIVE = re.compile(f"[{_NEVER}{_IN_CODE}]")
_ACTIVE = re.compile(f"[{_NEVER}]")


def _name(character: str) -> str:
    return f"U+{ord(character):04X}"


def plain_lines(text: str) -> str:
    """With one kind of line end and without terminal colours."""
    return _COLOURS.sub("", text.replace("\r\n", "\n"))


def prose(text: str) -> str:
    """Text in which nothing turns the direction of what follows, as text again."""
    return _ACTIVE.sub(lambda found: f"⟨{_name(found[0])}⟩", plain_lines(text))


def code(text: object) -> Markup:
    """Commands, names, output: every invisible character is a visible mark."""
    safe = str(escape(plain_lines(str(text))))
    return Markup(_DECEPTIVE.sub(lambda found: mark(found[0]), safe))  # noqa: S704


def mark(character: str) -> str:
    return f'<span class="mark">{_name(character)}</span>'


def mark_code(html: str) -> str:
    """The same for code that has become HTML already."""
    return _DECEPTIVE.sub(lambda found: mark(found[0]), html)
