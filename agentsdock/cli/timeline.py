"""Timeline events as lines for a person.  Nothing of an agent's text reaches the terminal raw."""

import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import frozen

Event = Mapping[str, Any]

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # the sequences that a terminal would act on, whole
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
LABEL_WIDTH = 12
TEXT_CHARS = 4000
DATA_CHARS = 200


@frozen
class Line:
    """One entry of a timeline: a short label, text of any number of lines, a colour."""

    label: str
    text: str
    style: str = ""

    def __str__(self) -> str:
        head, *rest = self.text.split("\n")
        lines = [f"{self.label:<{LABEL_WIDTH}} {head}".rstrip()]
        return "\n".join([*lines, *(f"{'':<{LABEL_WIDTH}} {line}".rstrip() for line in rest)])


def clean(text: str) -> str:
    """Text without what could move the cursor, hide or reorder what stands around it."""
    return _CONTROL.sub("", text)


def one_line(text: str, limit: int) -> str:
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def line_of(event: Event) -> Line | None:
    """The line of an event, or None where a person needs none."""
    describe = _LINES.get(event["type"])
    if describe is not None:
        return describe(event)
    message = event.get("message")
    return (
        Line("note", f"{event['type']}: {one_line(str(message), DATA_CHARS)}") if message else None
    )


def _text(event: Event, key: str = "text") -> str:
    text = clean(str(event.get(key) or "")).strip()
    return text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}\n… ({len(text)} characters)"


def _data(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, DATA_CHARS)


def _gist(given: Any) -> str:
    """What a call is about: its command or its place, where it names one."""
    fields = given if isinstance(given, dict) else {}
    told = (fields.get(key) for key in ("command", "path", "file_path", "pattern", "url", "query"))
    return _data(next((value for value in told if isinstance(value, str) and value), given))


def _started(event: Event) -> Line:
    model = f", model {event['model']}" if event.get("model") else ""
    return Line("turn", f"{event.get('run_id')} ({event.get('backend')}{model})", "bold")


def _queued(event: Event) -> Line:
    return Line("queued", f"{event.get('queued_id')} at position {event.get('position')}")


def _tool_started(event: Event) -> Line:
    tool = event.get("tool") or {}
    return Line("tool", f"{tool.get('name')} {_gist(tool.get('input'))}", "cyan")


def _tool_finished(event: Event) -> Line:
    tool = event.get("tool") or {}
    outcome = str(event.get("outcome") or ("failed" if event.get("is_error") else "ok"))
    output = _data(event.get("output") or "")
    exit_code = event.get("exit_code")
    status = f" (exit {exit_code})" if exit_code else ""
    style = {"ok": "green", "unfinished": "yellow"}.get(outcome, "red")
    return Line(f"  {outcome}", f"{tool.get('name')}{status} {output}", style)


def _diff(event: Event) -> Line:
    files = [str(file.get("path")) for file in event.get("diff_files") or ()]
    counts = f"+{event.get('additions', 0)} -{event.get('deletions', 0)}"
    return Line("changed", f"{counts} {_data(', '.join(files))}")


def _warning(event: Event) -> Line:
    left = event.get("left_seconds")
    ends = f"; the turn ends in {left:.0f} s" if isinstance(left, int | float) else ""
    return Line("silent", f"for {event.get('idle_seconds', 0):.0f} s{ends}", "yellow")


def _error(event: Event) -> Line:
    code = event.get("code")
    text = _text(event, "message")
    return Line("error", f"{text} [{code}]" if code else text, "red")


def _finished(event: Event) -> Line:
    facts = [] if event.get("wall_seconds") is None else [f"{event['wall_seconds']:.1f} s"]
    if event.get("tree_empty") is False:
        facts.append(f"PROCESSES LEFT: {event.get('survivors')}")
    elif event.get("tree_empty") and event.get("rung"):
        facts.append("no process left")
    if event.get("code_diff_missing"):
        facts.append(f"no diff: {_data(event['code_diff_missing'])}")
    if event.get("exit_overrun"):
        facts.append("the CLI did not exit by itself")
    tail = f" ({', '.join(facts)})" if facts else ""
    return Line(verdict(event), f"{_reason(event)}{tail}".strip(), _VERDICT_STYLES[verdict(event)])


def _reason(event: Event) -> str:
    if event.get("code") is None:
        return ""
    said = one_line(str(event.get("message") or ""), DATA_CHARS)
    return f"{event['code']}: {said}" if said else str(event["code"])


def verdict(event: Event) -> str:
    """``succeeded``, ``failed`` or ``stopped``, of a terminal event."""
    if event.get("is_error"):
        return "failed"
    if event.get("stopped") or event["type"] == "turn_stopped":
        return "stopped"
    return "succeeded"


_VERDICT_STYLES = {"succeeded": "bold green", "failed": "bold red", "stopped": "bold yellow"}

_LINES = {
    "turn_started": _started,
    "turn_queued": _queued,
    "turn_deferred": lambda event: Line("waits", _text(event, "message"), "yellow"),
    "turn_queue_updated": lambda event: Line("edited", _text(event, "prompt")),
    "turn_queue_run_now": lambda event: Line("forced", _text(event, "message")),
    "turn_unqueued": lambda event: Line("unqueued", _text(event, "message"), "yellow"),
    "process_started": lambda event: Line("process", _data(" ".join(event.get("argv") or ()))),
    "provider_session": lambda event: Line("session", str(event.get("provider_session_id"))),
    "reasoning_summary": lambda event: Line("thinks", _text(event), "dim"),
    "assistant_text": lambda event: Line("says", _text(event)),
    "tool_started": _tool_started,
    "tool_finished": _tool_finished,
    "code_diff": _diff,
    "idle_warning": _warning,
    "raw_event": lambda event: Line("unusable", _data(event.get("raw") or "a line"), "yellow"),
    "error": _error,
    "turn_finished": _finished,
    "turn_stopped": _finished,
}
