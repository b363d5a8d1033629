"""A Cursor CLI that works as people see it at work: it thinks, reads, edits, fails and tells.

``show=NAME`` plays a scene of SCENES; ``say=PATH`` says what that file holds; ``hang=1`` waits
for its end after that.  Everything else is the fake agent's.
"""

import json
import os
import pathlib
import signal
import sys
import time

from agentsdock.testing import fake_agent

ANSWER = """\
The retry loop gave up too early: `deadline` was computed once, **before** the first attempt, so a
slow first answer used up the time of all others.

### What I changed

1. Each attempt has a deadline of its own (`client/retry.py`).
2. The pause between attempts doubles, with a bound of 30 s.
3. A test holds both.

```python
async def attempt(call, *, tries: int = 5, pause: float = 0.5):
    for number in range(tries):
        with trio.move_on_after(LIMIT):
            return await call()
        await trio.sleep(min(pause * 2**number, 30))
    raise GaveUp(tries)
```

| case | before | after |
|---|--:|--:|
| slow first answer | gives up after 5 s | 3 tries |
| server down | 5 tries | 5 tries |

All 42 tests pass. The [design note](docs/retries.md) says why the bound is 30 s.
"""
BEFORE = (
    "import trio\n\nLIMIT = 5\n\n\nasync def attempt(call):\n    deadline = LIMIT\n"
    "    return await call()\n"
)
AFTER = (
    "import trio\n\nLIMIT = 5\n\n\nasync def attempt(call, *, tries: int = 5):\n"
    "    for number in range(tries):\n        with trio.move_on_after(LIMIT):\n"
    "            return await call()\n    raise GaveUp(tries)\n"
)


def main() -> int:
    args = sys.argv[1:]
    cursor = fake_agent.Cursor(fake_agent.conversation(args))
    if fake_agent.probe_answer("cursor-agent", args, cursor.session_id) is not None:
        return finished(fake_agent.main())
    prompt = "\n".join(args)
    orders = fake_agent.Orders(prompt)
    scene = orders.word("show") or next((SAID[words] for words in SAID if words in prompt), "")
    if not (scene or orders.word("say")):
        return finished(fake_agent.main())
    say(*cursor.init())
    text = "done"
    if scene:
        text = SCENES[scene](cursor)
    if orders.word("say"):
        text = pathlib.Path(orders.word("say")).read_text(encoding="utf-8")
        say(*cursor.text(text))
    while orders.on("hang"):
        signal.pause()
    say(*cursor.result(text, error=False, subtype=""))
    return 0


def finished(status: int) -> int:
    sys.stdout.flush()
    return status


def work(cursor: fake_agent.Cursor) -> str:
    think(cursor, "Looking for the place where the deadline is computed\n\nIt must be per attempt.")
    call(cursor, "grep", {"pattern": "deadline", "path": "client"}, {"matches": 3})
    call(cursor, "read", {"path": "client/retry.py"}, {"content": BEFORE})
    say(*cursor.text("The deadline is shared by all attempts. I'll give each its own."))
    os.makedirs("client", exist_ok=True)
    pathlib.Path("client/retry.py").write_text(AFTER)
    call(cursor, "edit", {"path": "client/retry.py"}, {"diffString": "..."})
    shell(cursor, "pytest -q client", "42 passed in 1.93s\n", 0)
    shell(cursor, "ruff check client", "client/retry.py:9: F821 undefined name `GaveUp`\n", 1)
    shell(cursor, "git diff --stat", " client/retry.py | 9 ++++++---\n", 0)
    say(*cursor.text(ANSWER))
    return ANSWER


def plan(cursor: fake_agent.Cursor) -> str:
    think(cursor, "Sorting out the steps")
    steps = "# Move the queue\n\n1. Write the migration\n2. Copy what waits\n3. Drop the file\n"
    call(cursor, "createPlan", {"plan": steps, "name": "Move the queue"}, {})
    say(*cursor.text("The plan is ready. Say *go* and I begin."))
    return "The plan is ready. Say *go* and I begin."


def marks(cursor: fake_agent.Cursor) -> str:
    shell(cursor, "rm -rf WORK/safe \u202e# gnp.exe", "\x1b[2Jcleared\u200b\n", 0)
    return "done"


def wait(cursor: fake_agent.Cursor) -> str:
    think(cursor, "The nightly job starts at two, but the backup holds the lock until three")
    shell(cursor, "journalctl -u nightly --since yesterday", "02:00 waiting for the lock\n", 0)
    call(cursor, "read", {"path": "jobs/nightly.py"}, {"content": "..."})
    say(*cursor.text("The job waits for the backup. I am looking for who takes the lock first."))
    begin(cursor, "shell", {"command": "grep -rn 'lock(' jobs backup | head"})
    while True:
        signal.pause()


SCENES = {"work": work, "plan": plan, "marks": marks, "wait": wait}
SAID = {"gives up too early": "work", "into the database": "plan", "and then wait": "wait"}
"""Scenes that are asked for in plain words, for pictures."""
_numbers = iter(range(10**6))


def think(cursor: fake_agent.Cursor, text: str) -> None:
    say(cursor._line("thinking", subtype="delta", text=text))
    say(cursor._line("thinking", subtype="completed"))


def shell(cursor: fake_agent.Cursor, command: str, output: str, status: int) -> None:
    done = {"command": command, "exitCode": status, "stdout": output, "stderr": ""}
    outcome = {"success": done} if status == 0 else {"failure": done}
    _call(cursor, "shell", {"command": command}, outcome)


def call(cursor: fake_agent.Cursor, tool: str, args: dict, done: dict) -> None:
    _call(cursor, tool, args, {"success": done})


def _call(cursor: fake_agent.Cursor, tool: str, args: dict, outcome: dict) -> None:
    fields = begin(cursor, tool, args)
    name = f"{tool}ToolCall"
    time.sleep(0.01)
    done = {name: {"args": args, "result": outcome}}
    say(cursor._line("tool_call", subtype="completed", tool_call=done, **fields))


def begin(cursor: fake_agent.Cursor, tool: str, args: dict) -> dict:
    fields = {"call_id": f"call-{next(_numbers)}"}
    began = {f"{tool}ToolCall": {"args": args}}
    say(cursor._line("tool_call", subtype="started", tool_call=began, **fields))
    return fields


def say(*events: "fake_agent.Event") -> None:
    for event in events:
        os.write(1, json.dumps(event).encode() + b"\n")
