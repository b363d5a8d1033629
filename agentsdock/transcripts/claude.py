"""Entries of Claude Code's transcripts (``projects/<folder>/<session id>.jsonl``)."""

from collections.abc import Mapping
from typing import Any

from agentsdock.transcripts.reading import (
    Entry,
    Said,
    Unused,
    given_time,
    is_boilerplate,
    texts,
    without_wrapper,
)

_BOILERPLATE = (
    "<command-",
    "<local-command-",
    "<system-reminder>",
    "Caveat: The messages below",
    "[Request interrupted by user",
)


def read(entry: Mapping[str, Any]) -> Entry:
    """Raises Unused."""
    role = entry.get("type")
    if role not in ("user", "assistant"):
        raise Unused("no message")
    if entry.get("isSidechain"):
        raise Unused("of a helper")
    if entry.get("isMeta") or entry.get("isCompactSummary"):
        raise Unused("added by the CLI")
    message = entry.get("message")
    if not isinstance(message, dict):
        raise Unused("no message")
    text = texts(message.get("content"), ("text",))
    if role == "user":
        text = without_wrapper(text)
        if is_boilerplate(text, _BOILERPLATE):
            raise Unused("added by the CLI")
    key = entry.get("uuid")
    return Entry(Said(role, text, given_time(entry)), key if isinstance(key, str) else None)
