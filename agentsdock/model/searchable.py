"""What of an event can be found by its words, and who said it."""

from typing import Any

MAX_CHARS = 262_144
"""What lies behind, in one event, is not found."""
MAX_DEPTH = 8

_FIELDS = {
    "turn_started": ("user", "prompt"),
    "assistant_text": ("assistant", "text"),
    "turn_finished": ("assistant", "result_text"),
    "reasoning_summary": ("trace", "text"),
    "tool_finished": ("trace", "output"),
    "error": ("error", "message"),
    "artifact_error": ("error", "error"),
    "job_error": ("job", "message"),
    "job_deferred": ("job", "message"),
    "job_ran": ("job", "message"),
    "history_imported": ("system", "message"),
    "provider_rollover": ("system", "message"),
    "handoff_digest_received": ("system", "digest"),
}
SEARCHABLE_TYPES = frozenset(_FIELDS) | {"tool_started", "file_uploaded", "artifact_created"}


def read_searchable(event: dict[str, Any]) -> tuple[str, str]:
    """The role (user, assistant, trace, error, job, file, system) and the text of an event."""
    kind = event["type"]
    if kind == "tool_started":
        role, text = "trace", " ".join(_strings(event.get("tool"), MAX_DEPTH))
    elif kind in ("file_uploaded", "artifact_created"):
        record = event.get("file") or event.get("artifact")
        fields = record if isinstance(record, dict) else {}
        named = (fields.get(name) for name in ("title", "filename", "text"))
        role, text = "file", " ".join(name for name in named if isinstance(name, str))
    else:
        role, name = _FIELDS[kind]
        text = str(event.get(name) or "")
    if role in ("user", "assistant") and event.get("job_id"):
        role = "job"
    return role, text[:MAX_CHARS]


def _strings(value: Any, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    if depth and isinstance(value, dict):
        return [text for inner in value.values() for text in _strings(inner, depth - 1)]
    if depth and isinstance(value, list):
        return [text for inner in value for text in _strings(inner, depth - 1)]
    return []
