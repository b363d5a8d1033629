"""The program behind an installed player: a Cursor CLI that says what its script tells it to.

It is run by path with ``-I -S`` as ``play.py SCRIPT.json [arguments of the CLI]``, so it may use
nothing but the standard library.  :mod:`agentsdock.testing.player` writes the script.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

HELP = """\
Usage: cursor-agent [options] [command] [prompt...]

Plays a recorded conversation in place of the Cursor CLI.

Options:
  -v, --version              Print the version and exit
  -p, --print                Answer on stdout and exit (default: false)
  --output-format <format>   Format of --print: text | json | stream-json
  --mode <mode>              Mode of the turn (choices: "plan", "ask")
  --resume [chatId]          Go on with a chat
  --model <model>            Model of this turn
  --list-models              List the models and exit (default: false)
  -f, --force                Allow commands unless they are denied
  --trust                    Trust the workspace (default: false)
  -h, --help                 Print this help

Commands:
  status|whoami              Tell who is signed in
  models                     List the models
  about                      Tell version and account
  create-chat                Make an empty chat and print its id
"""
ABOUT = """\
About Cursor CLI

CLI Version         2026.10.01-player
Latest Version      2026.10.01-player
Model               Auto
Subscription Tier   Pro
User Email          player@example.invalid
"""
MODELS = "Available models\n\nauto - Auto (current, default)\nsonnet-4 - Sonnet 4\n"
ANSWERS = {
    "help": HELP,
    "about": ABOUT,
    "version": "2026.10.01-player\n",
    "status": "Logged in as player@example.invalid\n",
    "models": MODELS,
    "create-chat": "00000000-0000-4000-8000-000000000000\n",
}
COMMANDS = {
    "--help": "help",
    "-h": "help",
    "--version": "version",
    "-v": "version",
    "--list-models": "models",
    "whoami": "status",
}
TURN = "turn"


def command(args: Sequence[str]) -> str:
    """Which command these arguments are; whatever prints an answer to a prompt is a turn."""
    if "-p" in args or "--print" in args:
        return TURN
    for arg in args:
        known = COMMANDS.get(arg, arg)
        if known in ANSWERS:
            return known
    return "help"


def answer(script: dict[str, Any], name: str) -> int:
    told = script["answers"].get(name)
    if told is None:
        sys.stdout.write(ANSWERS[name])
        return 0
    out = sys.stderr if told["on_stderr"] else sys.stdout
    out.write(told["text"])
    return int(told["exit_status"])


# Turns


def demo(args: Sequence[str]) -> Iterator[tuple[float, bytes]]:
    """A small made-up conversation: (pause before it in seconds, line)."""
    session = args[args.index("--resume") + 1] if "--resume" in args[:-1] else new_id()
    call = {"args": {"command": "ls", "timeout": 30000}}
    listing = {"success": {"command": "ls", "exitCode": 0, "stdout": "README.md\n", "stderr": ""}}
    first = "I'll look round first."
    last = "There is one file here, README.md. This answer is a recording; no model was asked."
    rows: list[tuple[float, dict[str, Any]]] = [
        (
            0.1,
            {
                "type": "system",
                "subtype": "init",
                "apiKeySource": "login",
                "cwd": os.getcwd(),
                "model": "Auto",
                "permissionMode": "default",
            },
        ),
        (0, said("user", "(the prompt)")),
        (0.1, {"type": "thinking", "subtype": "delta", "text": "First I need to know "}),
        (0.1, {"type": "thinking", "subtype": "delta", "text": "what lies here."}),
        (0.05, {"type": "thinking", "subtype": "completed"}),
        (0.1, said("assistant", first)),
        (0.1, tool("started", {"shellToolCall": call})),
        (0.15, tool("completed", {"shellToolCall": {**call, "result": listing}})),
        (0.1, said("assistant", last)),
        (
            0.05,
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "duration_ms": 850,
                "duration_api_ms": 850,
                "result": first + last,
                "request_id": new_id(),
                "usage": {"inputTokens": 1200, "outputTokens": 45, "cacheReadTokens": 800},
            },
        ),
    ]
    for pause, row in rows:
        yield pause, json.dumps({**row, "session_id": session}).encode() + b"\n"


def said(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": role, "message": {"role": role, "content": content}}


def tool(step: str, call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call", "subtype": step, "call_id": "call_1\nfc_1", "tool_call": call}


def new_id() -> str:
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def recording(path: str, chunk: int | None, pause: float) -> Iterator[tuple[float, bytes]]:
    """Pieces of a recorded stream: ``chunk`` bytes each, or a line each."""
    with open(path, "rb") as stream:
        while piece := stream.read(chunk) if chunk else stream.readline():
            yield pause, piece


def play(script: dict[str, Any], args: Sequence[str]) -> int:
    """Play a turn; returns the exit status, or does not return where none is scripted."""
    time.sleep(script["first_pause"])
    sys.stderr.write(script["stderr"])
    sys.stderr.flush()
    if script["stream"] is None:
        pieces = demo(args)
    else:
        pieces = recording(script["stream"], script["chunk"], script["pause"])
    for pause, piece in pieces:
        time.sleep(pause)
        write_all(piece)
    status = script["exit_status"]
    while status is None:
        signal.pause()
    if status < 0:
        os.kill(os.getpid(), -status)
    return int(status)


def write_all(data: bytes) -> None:
    """Unbuffered, so that a piece is one arrival at the reader."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        script = json.load(file)
    args = sys.argv[2:]
    name = command(args)
    call = {"command": name, "argv": args, "cwd": os.getcwd(), "pid": os.getpid()}
    fd = os.open(script["calls"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, json.dumps(call).encode() + b"\n")
    os.close(fd)
    return play(script, args) if name == TURN else answer(script, name)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGPIPE):  # Python's own ways would hide the signal
        signal.signal(number, signal.SIG_DFL)
    sys.exit(main())
