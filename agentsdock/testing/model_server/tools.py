"""Calls of the CLIs' own tools: what "run this", "write that" is for the CLI that asks."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentsdock.testing.model_server.scripts import Step

Call = tuple[str, Any]
"""A tool's name and its input; text is the input of a free-form tool."""


def claude_call(step: Step) -> Call:
    match step:
        case {"shell": command}:
            return "Bash", {"command": command, "description": "Run a scripted command"}
        case {"write": path, "content": content}:
            return "Write", {"file_path": path, "content": content}
        case {"edit": path, "old": old, "new": new}:
            return "Edit", {"file_path": path, "old_string": old, "new_string": new}
        case {"read": path}:
            return "Read", {"file_path": path}
    return step["tool"], step.get("input", {})


def codex_call(step: Step, offered: Sequence[Mapping[str, Any]]) -> Call:
    """By what the CLI offers: which tools it has depends on the model's name."""
    if "tool" in step:
        return step["tool"], step.get("input", {})
    tools = {tool.get("name"): tool for tool in offered}
    patch = _patch(step)
    if patch is not None and "apply_patch" in tools:
        free = tools["apply_patch"].get("type") == "custom"
        return "apply_patch", patch if free else {"input": patch}
    command = _command(step, patch)
    if "exec_command" in tools:
        return "exec_command", {"cmd": command}
    if "exec" in tools and tools["exec"].get("type") == "custom":
        inner = (
            f"apply_patch({json.dumps(patch)})"
            if patch is not None
            else f"exec_command({json.dumps({'cmd': command})})"
        )
        return "exec", f"text(JSON.stringify(await tools.{inner}))"
    if "shell_command" in tools:
        return "shell_command", {"command": command}
    return "shell", {"command": ["bash", "-lc", command]}


def _patch(step: Step) -> str | None:
    match step:
        case {"write": path, "content": content}:
            added = "".join(f"+{line}\n" for line in content.splitlines())
            return f"*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch"
        case {"edit": path, "old": old, "new": new}:
            hunk = f"@@\n-{old}\n+{new}\n"
            return f"*** Begin Patch\n*** Update File: {path}\n{hunk}*** End Patch"
    return None


def _command(step: Step, patch: str | None) -> str:
    if patch is not None:
        return f"apply_patch <<'PATCH'\n{patch}\nPATCH"
    command: str = step["shell"] if "shell" in step else f"cat {step['read']}"
    return command
