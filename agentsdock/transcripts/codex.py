"""Entries of Codex's transcripts (``sessions/YYYY/MM/DD/rollout-<time>-<thread id>.jsonl``)."""

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
    "<environment_context>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<user_instructions>",
    "# AGENTS.md instructions",
)


def read(entry: Mapping[str, Any]) -> Entry:
    """Raises Unused."""
    item = entry.get("payload") if entry.get("type") == "response_item" else entry
    if not isinstance(item, dict) or item.get("type") != "message":
        raise Unused("no message")
    role = item.get("role")
    if role not in ("user", "assistant"):
        raise Unused("added by the CLI")
    text = texts(item.get("content"), ("input_text", "output_text", "text"))
    if role == "user":
        text = without_wrapper(text)
        if is_boilerplate(text, _BOILERPLATE):
            raise Unused("added by the CLI")
    key = item.get("id")
    return Entry(Said(role, text, given_time(entry)), key if isinstance(key, str) else None)
