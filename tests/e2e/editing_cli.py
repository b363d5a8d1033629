"""A Cursor CLI that edits files of its folder, and says so, as its prompt asks.

``edit=a,b`` appends a line to each by an edit tool, ``shell=a`` by a shell call, ``refused=a``
by an edit that was rejected; ``commits=N`` commits so often.  Then ``hang=1`` waits for its end,
``exit=N`` leaves without a result; else the turn succeeds.
"""

import json
import os
import signal
import subprocess
import sys

from agentsdock.testing import fake_agent

LINE = "a line by the agent\n"


def main() -> int:
    args = sys.argv[1:]
    cursor = fake_agent.Cursor(fake_agent.conversation(args))
    answer = fake_agent.probe_answer("cursor-agent", args, cursor.session_id)
    if answer is not None:
        print(answer, flush=True)
        return 0
    orders = fake_agent.Orders(fake_agent.read_prompt(args))
    say(*cursor.init())
    for kind, tool, outcome in (
        ("edit", "editToolCall", "success"),
        ("shell", "shellToolCall", "success"),
        ("refused", "editToolCall", "rejected"),
    ):
        for path in filter(None, orders.word(kind).split(",")):
            call(cursor, tool, path, outcome)
    for number in range(orders.count("commits")):
        commit(number)
    if orders.on("hang"):
        while True:
            signal.pause()
    if orders.count("exit"):
        return orders.count("exit")
    say(*cursor.result("done", error=False, subtype=""))
    return 0


def call(cursor: fake_agent.Cursor, tool: str, path: str, outcome: str) -> None:
    args = {"path": path} if tool == "editToolCall" else {"command": f"append {path}"}
    fields = {"call_id": f"{tool}-{path}-{outcome}"}
    began = {tool: {"args": args}}
    say(cursor._line("tool_call", subtype="started", tool_call=began, **fields))
    with open(path, "a") as file:
        file.write(LINE)
    done = {tool: {"args": args, "result": {outcome: {}}}}
    say(cursor._line("tool_call", subtype="completed", tool_call=done, **fields))


def commit(number: int) -> None:
    with open("committed.txt", "a") as file:
        file.write(f"{number}\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("add", "committed.txt"), (*identity, "commit", "-q", "-m", str(number))):
        subprocess.run(["git", *command], check=True)


def say(*events: "fake_agent.Event") -> None:
    for event in events:
        os.write(1, json.dumps(event).encode() + b"\n")
