"""A Cursor CLI that misbehaves as ``[[fake bad=NAME]]`` asks; otherwise it is ``fake_agent``.

``gate=PATH`` lets it wait until the pipe of that name is open for writing.
"""

import itertools
import json
import os
import random
import signal
import sys

from agentsdock.testing import fake_agent

MIB = 1 << 20


def main() -> int:
    args = sys.argv[1:]
    cursor = fake_agent.Cursor(fake_agent.conversation(args))
    answer = fake_agent.probe_answer("cursor-agent", args, cursor.session_id)
    if answer is not None:
        print(answer, flush=True)
        return 0
    orders = fake_agent.Orders(fake_agent.read_prompt(args))
    if orders.word("gate"):
        os.close(os.open(orders.word("gate"), os.O_RDONLY))
    if not orders.word("bad"):
        return fake_agent.Turn(cursor, orders, fake_agent.StepLog(orders.word("log"))).run()
    BEHAVIOURS[orders.word("bad")](cursor)
    return 0


def garbage(cursor: fake_agent.Cursor) -> None:
    start(cursor)
    write(random.Random(1).randbytes(10 * MIB))


def long_line(cursor: fake_agent.Cursor) -> None:
    start(cursor)
    write(b'{"type":"assistant","text":"' + b"x" * (70 * MIB) + b'"}\n')
    finish(cursor)


def long_line_without_end(cursor: fake_agent.Cursor) -> None:
    start(cursor)
    write(b'{"type":"assistant","text":"' + b"x" * (70 * MIB))
    wait()


def nested_line(cursor: fake_agent.Cursor) -> None:
    nested(cursor, "%s")


def nested_message(cursor: fake_agent.Cursor) -> None:
    nested(cursor, '{"type":"assistant","message":%s}')


def nested_call(cursor: fake_agent.Cursor) -> None:
    nested(
        cursor,
        '{"type":"tool_call","subtype":"started","call_id":"1",'
        '"tool_call":{"shellToolCall":{"args":{"command":%s}}}}',
    )


def nested_addition(cursor: fake_agent.Cursor) -> None:
    nested(cursor, '{"type":"assistant","later":%s}')


def nested(cursor: fake_agent.Cursor, line: str) -> None:
    start(cursor)
    write((line % ("[" * 10 * MIB + "]" * 10 * MIB)).encode() + b"\n")
    finish(cursor)


def huge_tool(cursor: fake_agent.Cursor) -> None:
    """As long as a line may be."""
    start(cursor)
    say(cursor.tool(1, "y" * (31 * MIB)))
    finish(cursor)


def many_large_lines(cursor: fake_agent.Cursor) -> None:
    start(cursor)
    for number in range(20):
        say(cursor.tool(number, "y" * (4 * MIB)))
    finish(cursor)


def endless_texts(cursor: fake_agent.Cursor) -> None:
    start(cursor)
    for _ in itertools.count():
        say(cursor.text("x" * 1000))


def silent_start(cursor: fake_agent.Cursor) -> None:
    wait()


def closed_stdout(cursor: fake_agent.Cursor) -> None:
    os.close(1)
    wait()


def closed_stdout_after_init(cursor: fake_agent.Cursor) -> None:
    start(cursor)
    os.close(1)
    wait()


def closed_and_gone(cursor: fake_agent.Cursor) -> None:
    os.close(1)


def killed(cursor: fake_agent.Cursor) -> None:
    start(cursor)
    say(cursor.text("half an answer"))
    os.kill(os.getpid(), signal.SIGKILL)


def start(cursor: fake_agent.Cursor) -> None:
    say(cursor.init())


def finish(cursor: fake_agent.Cursor) -> None:
    say(cursor.result("done", error=False, subtype=""))


def say(events: "list[fake_agent.Event]") -> None:
    for event in events:
        write(json.dumps(event).encode() + b"\n")


def write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def wait() -> None:
    while True:
        signal.pause()


BEHAVIOURS = {
    behaviour.__name__.replace("_", "-"): behaviour
    for behaviour in (
        garbage,
        long_line,
        long_line_without_end,
        nested_line,
        nested_message,
        nested_call,
        nested_addition,
        huge_tool,
        many_large_lines,
        endless_texts,
        silent_start,
        closed_stdout,
        closed_stdout_after_init,
        closed_and_gone,
        killed,
    )
}
