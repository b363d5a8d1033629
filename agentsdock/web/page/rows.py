"""From events to what a timeline shows of them: one renderer for what was and what happens."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from agentsdock.model.events import TERMINAL_TYPES
from agentsdock.web.page import tools
from agentsdock.web.page.advice import advice

Event = dict[str, Any]

_SILENT = frozenset(
    {
        "claude_subagents_stopped",
        "job_deleted",
        "job_updated",
        "process_started",
        "provider_session",
        "queue_snapshot",
        "raw_event",
        "session_created",
        "subagent_state",
        "turn_queue_delivery_fenced",
        "turn_queue_paused",
        "turn_queue_reordered",
        "turn_queue_run_now",
        "turn_queue_updated",
        "turn_queued",
    }
)
"""What is seen elsewhere on the page, or is of no use to a person."""

_NOTICES = {
    "backend_changed": "Backend changed",
    "cwd_fallback": "Another folder",
    "history_imported": "History imported",
    "idle_warning": "Quiet for a while",
    "provider_rollover": "A fresh session",
    "session_forked": "Forked",
    "turn_deferred": "Waiting",
    "turn_unqueued": "Not sent",
}


MOST_VERBS = 4


@frozen
class Row:
    """One row: which macro shows it, and what of.  ``key`` is the same for the start of a tool
    and its end, so that the later one takes the place of the earlier."""

    kind: str
    key: str
    seq: int
    event: Event
    shown: Any = None


@frozen
class Group:
    """Rows that follow one another and are folded as one: what an agent did on its way."""

    rows: list[Row]
    kind: str = "steps"

    @property
    def told(self) -> str:
        """In one line, as ``Timeline.count`` of the page's script says it of a longer group."""
        verbs = [row.shown.verb if row.kind == "tool" else "Thought" for row in self.rows]
        kinds = list(dict.fromkeys(verb.lower() for verb in verbs))
        named = ", ".join(kinds[:MOST_VERBS]) + ("…" if len(kinds) > MOST_VERBS else "")
        failed = sum(row.kind == "tool" and row.shown.failed for row in self.rows)
        steps = f"{len(self.rows)} step{'s' if len(self.rows) != 1 else ''}: {named}"
        return f"{steps} · {failed} failed" if failed else steps


def rows(events: Iterable[Event], said: frozenset[int] = frozenset()) -> list[Row]:
    """``said``: the terminal events whose result their turn has said in words already."""
    made: dict[str, Row] = {}
    for event in events:
        row = _row(event, said)
        if row is None:
            continue
        old = made.get(row.key)
        made[row.key] = (
            row if old is None else Row(row.kind, row.key, old.seq, row.event, row.shown)
        )
    return list(made.values())


def grouped(found: Iterable[Row]) -> Iterator[Row | Group]:
    steps: list[Row] = []
    for row in found:
        if row.kind in ("tool", "thought"):
            steps.append(row)
            continue
        if steps:
            yield Group(steps)
            steps = []
        yield row
    if steps:
        yield Group(steps)


def _row(event: Event, said: frozenset[int]) -> Row | None:
    kind, seq = event["type"], event["seq"]
    key = f"e{seq}"
    if kind in _SILENT or (kind == "turn_unqueued" and event.get("reason") == "deleted"):
        return None
    if kind in ("tool_started", "tool_finished"):
        shown = tools.shown(event)
        return Row("plan" if shown.plan else "tool", _tool_key(event), seq, event, shown)
    if kind == "reasoning_summary":
        return Row("thought", key, seq, event, _first_line(event.get("text")))
    if kind == "turn_started":
        return Row("prompt", key, seq, event)
    if kind == "assistant_text":
        return Row("answer", key, seq, event) if str(event.get("text") or "").strip() else None
    if kind == "code_diff":
        return Row("diff", key, seq, event)
    if kind in ("file_uploaded", "artifact_created"):
        return Row("file", key, seq, event) if isinstance(event.get("file"), dict) else None
    if kind.startswith("handoff_digest_") and isinstance(event.get("digest"), str):
        return Row("digest", key, seq, event)
    if kind == "error":
        return Row("error", key, seq, event, advice(event))
    if kind in TERMINAL_TYPES:
        has_words = bool(str(event.get("result_text") or "").strip()) and seq not in said
        return Row("end", key, seq, event, has_words)
    return Row("notice", key, seq, event, _notice(event))


def _tool_key(event: Event) -> str:
    tool = event.get("tool")
    call = event.get("tool_id") or (tool.get("id") if isinstance(tool, dict) else None)
    named = f"{event.get('run_id')}\n{call}".encode()
    return f"t{hashlib.blake2b(named, digest_size=10).hexdigest()}"


def _first_line(text: object) -> str:
    lines = str(text or "").strip().splitlines()
    return lines[0].strip("*# ")[:160] if lines else "Thought"


def _notice(event: Event) -> tuple[str, str]:
    """Title and words of an event that has no look of its own."""
    kind = str(event["type"])
    title = _NOTICES.get(kind) or kind.replace("_", " ").capitalize()
    if kind == "idle_warning":
        words = (
            f"No sign of life for {event.get('idle_seconds')} s. The {event.get('clock')} limit "
            f"ends this turn in {event.get('left_seconds')} s."
        )
        return title, words
    if kind == "backend_changed":
        return title, f"{event.get('old')} to {event.get('new')}"
    for name in ("message", "text", "error", "job_title", "title"):
        if isinstance(event.get(name), str) and event[name].strip():
            return title, event[name]
    known = ("seq", "id", "session_id", "type", "ts", "run_id")
    rest = {name: value for name, value in event.items() if name not in known}
    return title, json.dumps(rest, ensure_ascii=False)[:400] if rest else ""
