"""A Cursor CLI that takes one step for each byte in a pipe, and all the rest at its end.

``[[fake step=NAME gates=FOLDER]]`` reads ``FOLDER/NAME``, after it has noted its start there in
``starts``.
"""

import json
import os
import sys

from agentsdock.testing import fake_agent


def main() -> int:
    args = sys.argv[1:]
    cursor = fake_agent.Cursor(fake_agent.conversation(args))
    answer = fake_agent.probe_answer("cursor-agent", args, cursor.session_id)
    if answer is not None:
        print(answer, flush=True)
        return 0
    orders = fake_agent.Orders(fake_agent.read_prompt(args))
    folder, name = orders.word("gates"), orders.word("step")
    note(f"{folder}/starts", name)
    gate = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(gate, True)
    for event in (
        cursor.init()[0],
        *cursor.tool(1, "output"),
        *cursor.text("working"),
        *cursor.result("done", error=False, subtype=""),
    ):
        os.read(gate, 1)
        os.write(1, json.dumps(event).encode() + b"\n")
    return 0


def note(path: str, line: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, f"{line}\n".encode())
    os.close(log)
