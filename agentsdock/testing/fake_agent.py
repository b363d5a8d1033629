#!/usr/bin/env python3
"""A coding-agent CLI that does what its prompt says: for load, fault and process-tree tests.

It speaks as ``cursor-agent``, ``claude`` or ``codex``, by the name it was started under or by
``FAKE_AGENT_AS``.  It answers the probe commands of each.  A turn is steered by the last marker
in its prompt, which may be an argument or, where no argument has one, stdin::

    [[fake events=20 size=512 child=setsid hang=1]]

The stream:

==============  ==================================================================
``events=N``    assistant texts between init and result (1)
``size=BYTES``  length of each text (16); each begins with its number, ``#000042``
``delay=S``     pause before each text
``first=S``     pause before init
``tools=N``     pairs of tool start and tool end before the texts (0)
``toolsize=B``  length of each tool's output (16)
==============  ==================================================================

Its faults:

==================  ==============================================================
``hang=1``          after init say nothing more and never exit
``linger=S``        stay for S seconds after the result, -1 for ever
``noinit=1``        leave init out
``noresult=1``      leave the result out
``exit=N``          exit status (0)
``error=1``         the result is an error, in the CLI's own words
``subtype=NAME``    with this subtype instead (not codex)
``used=N``          the result counts N turns' tokens (codex: its thread's total)
``stderr=BYTES``    so much on stderr before the texts
``garbage=BYTES``   one line of so many bytes that are not JSON
``nonjson=N``       N short lines of prose
``badutf8=1``       one JSON line with two bytes that are not UTF-8
``nonl=1``          no line end after the last line
``ignoreterm=1``    the CLI itself ignores SIGTERM and SIGINT
==================  ==============================================================

Its processes, which sleep for ``childlife`` seconds (300):

==============  ==================================================================
``child=KINDS`` comma list of ``plain`` (a child in our group), ``term`` (the same,
                ignoring SIGTERM), ``setsid`` (a double-forked daemon with a session
                of its own), ``setsidterm`` (both)
``holdpipe=1``  they keep our stdout and stderr open
==============  ==================================================================

``log=PATH`` appends a JSON line for each step (``start``, ``child``, ``init``, ``end``) with pid
and time.  A resumed conversation keeps its id.

Standard library only; up in some 15 ms as ``python -I -S fake_agent.py``.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Event = dict[str, Any]

STARTED_AT = time.time()
MARKER = re.compile(r"\[\[fake([^\]]*)\]\]")
SPEAKERS = ("cursor-agent", "claude", "codex")
FOR_EVER = 10**9


def speaker(program: str) -> str:
    name = os.environ.get("FAKE_AGENT_AS") or os.path.basename(program)
    return next((known for known in SPEAKERS if known.split("-")[0] in name), "cursor-agent")


# Probes

CURSOR_HELP = """\
Usage: cursor-agent [options] [command] [prompt...]

Options:
  -v, --version              Print the version and exit
  -p, --print                Answer on stdout and exit
  --output-format <format>   Format of --print: text, json or stream-json
  --stream-partial-output    Stream text while it is written
  --mode <mode>              plan or ask
  --plan                     The same as --mode plan
  --resume [chatId]          Go on with a chat
  --model <model>            Model of this turn
  --list-models              List the models of this account and exit
  -f, --force                Allow every command that is not denied
  --trust                    Trust the workspace
  -h, --help                 Print this help

Commands:
  login         Sign in
  logout        Sign out
  status        Tell who is signed in
  about         Tell version and account
  models        List the models of this account
  create-chat   Make an empty chat and print its id
"""
CURSOR_ABOUT = """\
About Cursor CLI

CLI Version         2026.09.30-fake
Model               Auto
Subscription Tier   Pro
User Email          nobody@example.invalid
"""
OTHER_HELP = """\
Usage: {who} [options] [prompt]

  -p, --print                Answer on stdout and exit
  --output-format <format>   text, json or stream-json
  --model <model>            'sonnet' or 'opus'
  --effort <level>           low, medium or high
  --resume <id>              Go on with a session
  --no-session-persistence   Keep no session
  --verbose
  --version
"""
VERSIONS = {
    "cursor-agent": "2026.09.30-fake",
    "claude": "2.1.0 (Claude Code)",
    "codex": "codex-cli 0.99.0",
}


def probe_answer(who: str, args: Sequence[str], session_id: str) -> str | None:
    """What a probe command prints, or None where ``args`` start a turn."""
    words = [arg for arg in args if not arg.startswith("-")][:2]
    first = words[0] if words else ""
    if "--version" in args or args[:1] == ["-v"] or first == "version":
        return VERSIONS[who]
    if "--help" in args or "-h" in args:
        return CURSOR_HELP if who == "cursor-agent" else OTHER_HELP.format(who=who)
    if words == ["auth", "status"]:
        return json.dumps({"loggedIn": True, "authMethod": "fake"})
    if words == ["login", "status"]:
        return "Logged in using ChatGPT"
    if words == ["debug", "models"]:
        return json.dumps({"models": []})
    if first in ("status", "whoami"):
        return "Logged in as nobody@example.invalid"
    if first == "models" or "--list-models" in args:
        return "Available models\n\nauto - Auto\nsonnet-4 - Sonnet 4"
    if who == "cursor-agent":
        return {"about": CURSOR_ABOUT, "create-chat": session_id}.get(first)
    return "" if first == "mcp" else None


def conversation(args: Sequence[str]) -> str:
    """The id that was asked for with ``--resume ID`` or ``resume ID``, else a new one.

    A fork gets a new one.
    """
    if "--fork-session" in args:
        args = ()
    for flag, value in itertools.pairwise(args):
        if flag in ("--resume", "resume") and not value.startswith("-"):
            return value
        if flag.startswith("--resume="):
            return flag.partition("=")[2]
    if args and args[-1].startswith("--resume="):
        return args[-1].partition("=")[2]
    return f"00000000-0000-4000-8000-{int.from_bytes(os.urandom(6), 'big'):012x}"


# Orders


class Orders:
    """The last marker of a prompt, read as words, numbers and switches."""

    def __init__(self, prompt: str) -> None:
        markers = MARKER.findall(prompt)
        pairs = (pair.partition("=") for pair in (markers[-1].split() if markers else ()))
        self._given = {key: value or "1" for key, _, value in pairs}

    def word(self, key: str) -> str:
        return self._given.get(key, "")

    def number(self, key: str, default: float = 0) -> float:
        return float(self._given.get(key, default))

    def count(self, key: str, default: int = 0) -> int:
        return int(self.number(key, default))

    def on(self, key: str) -> bool:
        return self.word(key) not in ("", "0", "no")


def read_prompt(args: Sequence[str]) -> str:
    prompt = "\n".join(args)
    if MARKER.search(prompt) or sys.stdin.isatty():
        return prompt
    return sys.stdin.buffer.read().decode("utf-8", "replace")


# Dialects


class Claude:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id

    def init(self) -> list[Event]:
        return [
            self._line(
                "system",
                subtype="init",
                cwd=os.getcwd(),
                model="fake",
                tools=["Bash"],
                permissionMode="bypassPermissions",
                apiKeySource="none",
                uuid=self.session_id,
            )
        ]

    def text(self, text: str) -> list[Event]:
        return [self._assistant("msg_1", {"type": "text", "text": text})]

    def tool(self, index: int, output: str) -> list[Event]:
        call = f"toolu_{index:06d}"
        use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "true"}}
        done = {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": False}
        return [
            self._assistant("msg_t", use),
            self._line(
                "user", parent_tool_use_id=None, message={"role": "user", "content": [done]}
            ),
        ]

    def result(self, text: str, error: bool, subtype: str) -> list[Event]:
        return [
            self._line(
                "result",
                subtype=subtype or ("error_during_execution" if error else "success"),
                is_error=error,
                num_turns=1,
                duration_ms=1,
                duration_api_ms=1,
                result=text,
                total_cost_usd=0.0,
                usage={"input_tokens": 1, "output_tokens": 1},
            )
        ]

    def _assistant(self, message_id: str, block: Event) -> Event:
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": "fake",
            "stop_reason": None,
            "content": [block],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        return self._line("assistant", parent_tool_use_id=None, message=message)

    def _line(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "session_id": self.session_id, **fields}


class Cursor:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id

    def init(self) -> list[Event]:
        return [
            self._line(
                "system",
                subtype="init",
                apiKeySource="login",
                cwd=os.getcwd(),
                model="Auto",
                permissionMode="default",
            ),
            self._said("user", "the prompt"),
        ]

    def text(self, text: str) -> list[Event]:
        return [self._said("assistant", text)]

    def tool(self, index: int, output: str) -> list[Event]:
        call = f"call_{index:06d}\nfc_{index:06d}"  # ids of the real one hold a line feed too
        args = {"command": "true"}
        success = {"command": "true", "exitCode": 0, "stdout": output, "stderr": ""}
        return [
            self._line(
                "tool_call",
                subtype="started",
                call_id=call,
                tool_call={"shellToolCall": {"args": args}},
            ),
            self._line(
                "tool_call",
                subtype="completed",
                call_id=call,
                tool_call={"shellToolCall": {"args": args, "result": {"success": success}}},
            ),
        ]

    def result(self, text: str, error: bool, subtype: str) -> list[Event]:
        return [
            self._line(
                "result",
                subtype=subtype or ("error" if error else "success"),
                is_error=error,
                duration_ms=1,
                duration_api_ms=1,
                result=text,
                request_id=self.session_id,
            )
        ]

    def _said(self, role: str, text: str) -> Event:
        return self._line(role, message={"role": role, "content": [{"type": "text", "text": text}]})

    def _line(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, **fields, "session_id": self.session_id}


class Codex:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._items = 0

    def init(self) -> list[Event]:
        return [
            {"type": "thread.started", "thread_id": self.session_id},
            {"type": "turn.started"},
        ]

    def text(self, text: str) -> list[Event]:
        self._items += 1
        return [self._item("completed", type="agent_message", text=text)]

    def tool(self, index: int, output: str) -> list[Event]:
        self._items += 1
        call = {"type": "command_execution", "command": "true"}
        return [
            self._item(
                "started", **call, aggregated_output="", exit_code=None, status="in_progress"
            ),
            self._item(
                "completed", **call, aggregated_output=output, exit_code=0, status="completed"
            ),
        ]

    def result(self, text: str, error: bool, subtype: str) -> list[Event]:
        if error:
            return [{"type": "turn.failed", "error": {"message": text}}]
        usage = {"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 1}
        return [{"type": "turn.completed", "usage": usage}]

    def _item(self, step: str, **fields: Any) -> Event:
        return {"type": f"item.{step}", "item": {"id": f"item_{self._items}", **fields}}


Dialect = Claude | Cursor | Codex
DIALECTS: dict[str, type[Dialect]] = {
    "claude": Claude,
    "cursor-agent": Cursor,
    "codex": Codex,
}


# Processes


class StepLog:
    """Appends whole lines, so that parent and children can share one file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, step: str, **fields: Any) -> None:
        if not self._path:
            return
        row = {"step": step, "pid": os.getpid(), "t": time.time(), **fields}
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, json.dumps(row).encode() + b"\n")
        os.close(fd)


def start_child(kind: str, life: int, hold_pipe: bool, log: StepLog) -> None:
    """Fork one sleeper and return once it has logged itself."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_child(kind, life, hold_pipe, log, tell)
        finally:
            os._exit(127)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
    if kind.startswith("setsid"):
        os.waitpid(pid, 0)


def become_child(kind: str, life: int, hold_pipe: bool, log: StepLog, tell: int) -> None:
    if kind.startswith("setsid"):
        os.setsid()
        if os.fork():
            os._exit(0)
    if kind.endswith("term"):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if not hold_pipe:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    log("child", kind=kind, pgid=os.getpgid(0), sid=os.getsid(0))
    os.write(tell, b"1")
    os.close(tell)
    os.execvp("sleep", ["sleep", str(life)])  # noqa: S606


# A turn


class Turn:
    """One turn of one dialect on stdout, as its orders say."""

    def __init__(self, dialect: Dialect, orders: Orders, log: StepLog) -> None:
        self._dialect = dialect
        self._orders = orders
        self._log = log
        self._out = sys.stdout.buffer

    def run(self) -> int:
        orders, log = self._orders, self._log
        if orders.on("ignoreterm"):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
        time.sleep(orders.number("first"))
        for kind in filter(None, orders.word("child").split(",")):
            start_child(kind, orders.count("childlife", 300), orders.on("holdpipe"), log)
        log("init")
        if not orders.on("noinit"):
            self._say(self._dialect.init())
        while orders.on("hang"):
            time.sleep(FOR_EVER)
        self._noise()
        self._tools()
        last = self._texts()
        self._result(last)
        log("end", cpu=time.process_time())
        linger = orders.number("linger")
        time.sleep(FOR_EVER if linger < 0 else linger)
        return orders.count("exit")

    def _noise(self) -> None:
        orders, write = self._orders, self._out.write
        write_flood(sys.stderr.buffer.write, orders.count("stderr"))
        sys.stderr.buffer.flush()
        if orders.count("garbage"):
            write(b"\x01garbage " + b"x" * orders.count("garbage") + b"\n")
        for index in range(orders.count("nonjson")):
            write(b"warning: line %d is prose {\n" % index)
        if orders.on("badutf8"):
            line = json.dumps(self._dialect.text("bad<>byte")[0]).encode()
            write(line.replace(b"<>", b"\xff\xfe") + b"\n")
        self._out.flush()

    def _tools(self) -> None:
        for index in range(self._orders.count("tools")):
            self._say(self._dialect.tool(index, "y" * self._orders.count("toolsize", 16)))

    def _texts(self) -> str:
        size, delay = self._orders.count("size", 16), self._orders.number("delay")
        text = ""
        for index in range(self._orders.count("events", 1)):
            if delay:
                time.sleep(delay)
            text = f"#{index:06d} ".ljust(size, "x")[: max(size, 8)]
            self._say(self._dialect.text(text), flush=bool(delay))
        self._out.flush()
        return text if size <= 4096 else "done"

    def _result(self, text: str) -> None:
        if self._orders.on("noresult"):
            return
        lines = self._dialect.result(text, self._orders.on("error"), self._orders.word("subtype"))
        used = self._orders.count("used", 1)
        for line in lines:
            for name in line.get("usage", ()):
                line["usage"][name] *= used
        self._say(lines, end=b"" if self._orders.on("nonl") else b"\n")

    def _say(self, events: list[Event], *, flush: bool = True, end: bytes = b"\n") -> None:
        for event in events:
            self._out.write(json.dumps(event, separators=(",", ":")).encode() + end)
        if flush:
            self._out.flush()


def write_flood(write: Callable[[bytes], object], size: int) -> None:
    block = (b"noise on stderr " * 6 + b"\n") * 600
    while size > 0:
        write(block[:size])
        size -= len(block)


def main() -> int:
    who, args = speaker(sys.argv[0]), sys.argv[1:]
    session_id = conversation(args)
    if who == "codex" and args[:1] == ["app-server"]:
        sys.stderr.write("fake codex: there is no app-server\n")
        return 2
    answer = probe_answer(who, args, session_id)
    if answer is not None:
        print(answer)
        return 0
    orders = Orders(read_prompt(args))
    log = StepLog(orders.word("log"))
    log("start", who=who, t_start=STARTED_AT, argv=[arg[:80] for arg in args][:40])
    return Turn(DIALECTS[who](session_id), orders, log).run()


if __name__ == "__main__":
    status = 141
    with suppress(BrokenPipeError):
        status = main()
        sys.stdout.flush()
    # A reader that has gone must not turn into a traceback at interpreter exit.
    os._exit(status)
