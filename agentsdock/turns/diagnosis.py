"""What a CLI's own words tell of a failure, and how little of them may be shown.

The exit status of a CLI says next to nothing; its last line on stderr is where it says why.
"""

import json
import re
from collections.abc import Iterable
from enum import StrEnum

from attrs import frozen

TAIL_CHARS = 4000
LINE_CHARS = 500
MARK = "[redacted]"

_WORD = 8
"""Anything shorter is only a secret as a word of its own."""
_RUN = 32
"""Shared with a secret by chance hardly ever."""
_BLOCK = _RUN // 2
_LINES_READ = 30

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|(?=\n)|\Z)"  # OSC, DCS and the like
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


class Kind(StrEnum):
    """A failure that a person can do something about."""

    SIGN_IN = "sign_in"
    TRUST = "trust"
    MODEL = "model"
    USAGE_LIMIT = "usage_limit"
    SESSION_LOST = "session_lost"
    RETRIABLE = "retriable"


_WORDS = {
    Kind.SIGN_IN: r"authentication (?:is )?required|not (?:logged|signed) in|please (?:sign|log) in"
    r"|\bunauthorized\b|invalid (?:api|x-api)[ -]key|run /login|login (?:has )?expired"
    r"|session (?:has )?expired|missing (?:api key|environment variable)",
    Kind.TRUST: r"workspace trust|not inside a trusted"
    r"|(?:folder|directory|workspace) is not trusted",
    Kind.MODEL: r"cannot use this model|\bmodel\b(?! provider)[^.]{0,80}\b(?:unavailable"
    r"|not (?:found|available|supported|exist)|does(?: not|n't) exist)|unknown model",
    Kind.USAGE_LIMIT: r"usage limit|\bquota\b|insufficient_quota|out of credits?|credit balance"
    r"|spending limit",
    Kind.SESSION_LOST: r"no conversation found|no rollout found|failed to claim session"
    r"|unknown session",
    Kind.RETRIABLE: r"retriableerror|resource_exhausted|\[unavailable\]|overloaded|rate.?limit"
    r"|econnreset|etimedout|enoent\b.*\brename\b.*\.tmp",
}
_PATTERNS = {kind: re.compile(words, re.IGNORECASE) for kind, words in _WORDS.items()}

ADVICE = {
    Kind.SIGN_IN: "Sign-in needed: sign the CLI in on this machine, or give it a valid key.",
    Kind.TRUST: "The CLI does not trust this folder.",
    Kind.MODEL: "The CLI does not offer this model to this account.",
    Kind.USAGE_LIMIT: "The account's usage limit is reached.",
    Kind.SESSION_LOST: "The CLI no longer knows the session that was to be resumed.",
    Kind.RETRIABLE: "The cause looks transient; the turn can be tried again.",
}

_ERROR = re.compile(r"\W*(?:\w*error|fatal|panic)\b", re.IGNORECASE)
_NOISE = re.compile(
    r"at \S.*[:)]\Z|node\.js v\d|reading additional input from stdin|connection lost|retry attempt"
    r"|note: run with|[^a-z]*\Z",
    re.IGNORECASE,
)


@frozen
class Diagnosis:
    """The line that says most, and what it means where that is known."""

    line: str = ""
    kind: Kind | None = None


def clean(text: str) -> str:
    """Text without terminal control sequences; a bare CR ends a line, as on a terminal."""
    text = text.encode("utf-8", "replace").decode()
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def diagnose(text: str) -> Diagnosis:
    """Read the last lines of clean text from the end.

    A line that can be acted on wins over one that calls itself an error, that over any other.
    """
    lines = [line.strip() for line in text.splitlines()[-4 * _LINES_READ :] if line.strip()]
    lines = lines[-_LINES_READ:]
    for line in reversed(lines):
        for kind, pattern in _PATTERNS.items():
            if pattern.search(line[: 4 * LINE_CHARS]):
                return Diagnosis(line, kind)
    telling = [line for line in lines if not _NOISE.match(line[: 4 * LINE_CHARS])]
    errors = [line for line in telling if _ERROR.match(line)]
    return Diagnosis((errors or telling or [""])[-1])


def shown_tail(text: str, secrets: Iterable[str]) -> str:
    """The end of a stderr as an event may carry it."""
    return scrub(clean(text)[-4 * TAIL_CHARS :], secrets)[-TAIL_CHARS:]


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret, and every long enough piece of a long one, by a mark.

    A CLI may echo a prompt in part, cut at either end, or escaped inside JSON.
    """
    forms = sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)
    for form in forms:
        if len(form) >= _WORD:
            text = text.replace(form, MARK)
        else:
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MARK, text)
    for form in forms:
        if len(form) >= _RUN:
            text = _without_runs(text, form)
    return text


def _forms(secret: str) -> set[str]:
    plain = clean(secret).strip()
    escaped = {json.dumps(plain, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return {plain, *escaped} if plain else set()


def _without_runs(text: str, secret: str) -> str:
    """Mask each run of at least ``_RUN`` characters that ``text`` shares with ``secret``.

    Such a run holds a whole aligned block of half its length, so only those are looked up.
    """
    kept: list[str] = []
    done = at = 0
    while at + _BLOCK <= len(text):
        found = secret.find(text[at : at + _BLOCK])
        if found >= 0:
            start, end = _widen(text, secret, at, found, done)
            if end - start >= _RUN:
                kept += [text[done:start], MARK]
                done = at = end
                continue
        at += _BLOCK
    kept.append(text[done:])
    return "".join(kept)


def _widen(text: str, secret: str, at: int, found: int, floor: int) -> tuple[int, int]:
    start, left = at, found
    while start > floor and left > 0 and text[start - 1] == secret[left - 1]:
        start, left = start - 1, left - 1
    end, right = at + _BLOCK, found + _BLOCK
    while end < len(text) and right < len(secret) and text[end] == secret[right]:
        end, right = end + 1, right + 1
    return start, end
