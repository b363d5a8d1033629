"""Which files an edit tool of each CLI names, before anything of its input is cut."""

import json

import pytest

from agentsdock.streams.claude import ClaudeParser
from agentsdock.streams.codex import CodexParser
from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import ParserSpec, ToolFinished, ToolStarted

ID = "6f2c2f0e-1111-4222-8333-944445555666"
LONG = "x" * 100_000


def told(parser, *lines):
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    events = parser(ParserSpec()).feed(data)
    return [event.edits for event in events if isinstance(event, ToolStarted | ToolFinished)]


def cursor(kind, args, *subtypes):
    init = {"type": "system", "subtype": "init", "session_id": ID}
    body = {kind: {"args": args, "result": {"success": {}}}}
    calls = [
        {"type": "tool_call", "subtype": subtype, "call_id": "c", "tool_call": body}
        for subtype in subtypes or ("started",)
    ]
    return told(CursorParser, init, *calls)


def claude(name, given):
    init = {"type": "system", "subtype": "init", "session_id": ID, "cwd": "/w", "model": "m"}
    use = {"type": "tool_use", "id": "c", "name": name, "input": given}
    message = {"id": "msg_1", "model": "m", "content": [use]}
    return told(ClaudeParser, init, {"type": "assistant", "message": message, "session_id": ID})


def codex(stage, **fields):
    thread = {"type": "thread.started", "thread_id": ID}
    item = {"id": "item_1", **fields}
    return told(CodexParser, thread, {"type": f"item.{stage}", "item": item})


@pytest.mark.parametrize("kind", ["editToolCall", "writeToolCall", "deleteToolCall"])
def test_cursor_names_one_file(kind):
    assert cursor(kind, {"path": "src/a.py"}) == [("src/a.py",)]
    assert cursor(kind, {"streamContent": LONG, "path": "/w/a.py"}) == [("/w/a.py",)]
    assert cursor(kind, {"path": "a"}, "completed") == [("a",)], "an end that had no start"
    assert cursor(kind, {"path": "a"}, "started", "completed") == [("a",), ()]


@pytest.mark.parametrize("kind", ["readToolCall", "shellToolCall", "lsToolCall", "newToolCall"])
def test_other_tools_of_cursor_name_none(kind):
    assert cursor(kind, {"path": "a.py", "command": "rm a.py"}) == [()]


@pytest.mark.parametrize("path", [None, 7, "", ["a"], "a\0b", "x" * 4097])
def test_what_is_no_path_is_none(path):
    assert cursor("editToolCall", {"path": path}) == [()]
    assert claude("Edit", {"file_path": path}) == [()]
    assert codex("completed", type="file_change", changes=[{"path": path}]) == [()]


@pytest.mark.parametrize("name", ["Edit", "Write", "MultiEdit"])
def test_claude_names_one_file(name):
    assert claude(name, {"content": LONG, "file_path": "/w/a.py"}) == [("/w/a.py",)]
    assert claude(name, {}) == [()]
    assert claude(name, []) == [()]


def test_other_tools_of_claude_name_none_or_their_own():
    assert claude("NotebookEdit", {"notebook_path": "/w/n.ipynb"}) == [("/w/n.ipynb",)]
    assert claude("Read", {"file_path": "/w/a.py"}) == [()]
    assert claude("Bash", {"command": "rm a", "file_path": "a"}) == [()]


def test_codex_names_each_file_of_a_change():
    changes = [{"path": f"/w/{n}", "kind": "update"} for n in range(3)] + [None, "x"]
    paths = ("/w/0", "/w/1", "/w/2")
    assert codex("started", type="file_change", changes=changes) == [paths]
    assert codex("completed", type="file_change", changes=changes) == [paths]
    assert codex("completed", type="file_change", changes="x") == [()]
    assert codex("started", type="command_execution", command="rm a", changes=changes) == [()]


def test_a_change_of_very_many_files_is_bounded():
    changes = [{"path": f"/w/{n}"} for n in range(1500)]
    (paths,) = codex("started", type="file_change", changes=changes)
    assert len(paths) == 1000
