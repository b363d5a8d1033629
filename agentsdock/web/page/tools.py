"""A tool call as one line, and what lies behind it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import frozen

OUTPUT_CHARS = 6_000
"""Of an output that is shown at once; its end is kept, as the timeline keeps it."""
INPUT_CHARS = 4_000
LINE_CHARS = 200

_VERBS = {
    "shell": "Run",
    "bash": "Run",
    "command_execution": "Run",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "multiedit": "Edit",
    "apply_patch": "Edit",
    "file_change": "Edit",
    "delete": "Delete",
    "grep": "Search",
    "glob": "Find",
    "ls": "List",
    "semsearch": "Search",
    "webfetch": "Fetch",
    "websearch": "Search the web",
    "web_search": "Search the web",
    "task": "Delegate",
    "agent": "Delegate",
    "todowrite": "Plan steps",
    "todo": "Plan steps",
    "updatetodos": "Plan steps",
}
_TOLD_BY = (
    *("command", "pattern", "globPattern", "query", "url", "path", "file_path", "filePath"),
    *("description", "targetDirectory", "notebook_path", "prompt", "value"),
)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\s]+")


@frozen
class Shown:
    """``state`` is running, ok, failed, rejected or unfinished."""

    verb: str
    subject: str
    state: str
    plan: str
    details: str
    output: str
    output_cut: int
    exit_code: int | None

    @property
    def failed(self) -> bool:
        return self.state in ("failed", "rejected")


def shown(event: Mapping[str, Any]) -> Shown:
    tool = event.get("tool")
    tool = tool if isinstance(tool, dict) else {}
    given = tool.get("input")
    given = given if isinstance(given, dict) else {}
    name = str(tool.get("name") or event.get("tool_name") or "tool")
    plain = name.removesuffix("ToolCall")
    finished = event["type"] == "tool_finished"
    output = str(event.get("output") or "")
    chars = event.get("output_chars")
    total = chars if isinstance(chars, int) else len(output)
    kept = output[-OUTPUT_CHARS:]
    return Shown(
        verb=_VERBS.get(plain.lower()) or " ".join(_WORDS.split(plain)).strip().capitalize(),
        subject=_subject(given),
        state=str(event.get("outcome") or "ok") if finished else "running",
        plan=_plan(plain, given),
        details=_details(given),
        output=kept,
        output_cut=max(total - len(kept), 0),
        exit_code=event.get("exit_code") if finished else None,
    )


def plan_of(event: Mapping[str, Any]) -> str:
    return shown(event).plan if "tool" in event else ""


def _plan(name: str, given: Mapping[str, Any]) -> str:
    plan = given.get("plan")
    is_plan = name.lower() in ("createplan", "exitplanmode", "exit_plan_mode")
    return plan if is_plan and isinstance(plan, str) else ""


def _subject(given: Mapping[str, Any]) -> str:
    for name in _TOLD_BY:
        value = given.get(name)
        if isinstance(value, str) and value.strip():
            line = " ".join(value.split())
            return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}…"
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            return " ".join(value)[:LINE_CHARS]
    return ""


def _details(given: Mapping[str, Any]) -> str:
    """What it was asked, for people: a command as it stands, else its fields."""
    if set(given) <= {"command", "description", "timeout", "workingDirectory", "cwd"}:
        command = given.get("command")
        if isinstance(command, str):
            return command[:INPUT_CHARS]
    if not given:
        return ""
    return json.dumps(given, ensure_ascii=False, indent=2)[:INPUT_CHARS]
