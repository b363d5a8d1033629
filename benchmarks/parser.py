"""The Cursor parser (bytes to neutral events) against bare ``json.loads`` of the same lines.

Prints one JSON object: for each mix of lines the median CPU cost of both in microseconds a
line, and the median, over rounds that alternate in one process, of how many times faster the
parser is.

    python benchmarks/parser.py [--rounds N]
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from operator import truediv
from typing import NamedTuple

from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import Bounds, Fault, ParserSpec

CHUNKS = (64 * 1024, 256 * 1024)
LINES = 1_000
SESSION = "0b1f6a52-6f0e-4f5e-9d0c-2f7b5f0f3a11"
SPEC = ParserSpec(bounds=Bounds(tool_calls=10 * LINES, stream_lines=10 * LINES))
PLAIN = (
    "The pruning table says that apple trees are cut back in late winter, before the sap rises. "
)
ESCAPED = 'A "quoted"\tword,\na path C:\\trees\\apple and caf\u00e9 \u2013 '

INIT = {"type": "system", "subtype": "init", "session_id": SESSION, "cwd": "/w", "model": "Auto"}


def text_line(text: str, ascii_only: bool = False) -> str:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    line = {
        "type": "assistant",
        "message": message,
        "session_id": SESSION,
        "model_call_id": "5fd2a0b4-0-0b18",
        "timestamp_ms": 1_790_000_000_005,
    }
    return json.dumps(line, separators=(",", ":"), ensure_ascii=ascii_only)


def tool_lines(number: int, output: str) -> tuple[str, str]:
    """A call's start (1 kB) and its completion (2 kB)."""
    call_id = f"call-7f2d13a2-{number}\nfc_1d179e4a_{number}"
    args = {
        "command": f"python -m orchard.report --tree {number} --format table",
        "workingDirectory": "",
        "timeout": 30_000,
        "toolCallId": call_id,
        "simpleCommands": ["python"],
        "hasInputRedirect": False,
        "hasOutputRedirect": False,
        "parsingResult": {
            "parsingFailed": False,
            "executableCommands": [
                {
                    "name": "python",
                    "args": [
                        {"type": "word", "value": word}
                        for word in ("-m", "orchard.report", "--tree", str(number))
                    ],
                    "fullText": f"python -m orchard.report --tree {number} --format table",
                }
            ],
            "hasRedirects": False,
            "hasCommandSubstitution": False,
            "redirects": [],
        },
        "fileOutputThresholdBytes": "40000",
        "isBackground": False,
        "skipApproval": False,
    }
    success = {
        "command": args["command"],
        "workingDirectory": "",
        "exitCode": 0,
        "signal": "",
        "stdout": output,
        "stderr": "",
        "executionTime": 180,
        "interleavedOutput": output,
    }
    result = {"success": success, "isBackground": False}
    beside = {
        "hookAdditionalContexts": [],
        "toolCallId": call_id,
        "startedAtMs": "1790000000066",
    }
    common = {"model_call_id": "5fd2a0b4-0-0b18", "session_id": SESSION}
    started = {
        "type": "tool_call",
        "subtype": "started",
        "call_id": call_id,
        "tool_call": {"shellToolCall": {"args": args}, **beside},
        **common,
        "timestamp_ms": 1_790_000_000_066,
    }
    completed = {
        "type": "tool_call",
        "subtype": "completed",
        "call_id": call_id,
        "tool_call": {
            "shellToolCall": {"args": args, "result": result},
            **beside,
            "completedAtMs": "1790000000306",
        },
        **common,
        "timestamp_ms": 1_790_000_000_306,
    }
    return (
        json.dumps(started, separators=(",", ":")),
        json.dumps(completed, separators=(",", ":")),
    )


def newer(line: str) -> str:
    return line[:-1] + ',"fieldOfANewerBuild":{"a":[1,2,3]}}'


class Mix(NamedTuple):
    """Lines to measure, after lines that only bring the parser into its state."""

    lines: list[bytes]
    before: Sequence[bytes] = ()


def mixes() -> dict[str, Mix]:
    plain_1k = text_line((PLAIN * 10)[:850])
    plain_2k = text_line((PLAIN * 25)[:1850])
    escaped = text_line((ESCAPED * 60)[:1600])
    all_escaped = text_line((ESCAPED * 60)[:1600], ascii_only=True)
    calls = [tool_lines(number, "row 1: apple, february\n" * 15) for number in range(LINES)]
    starts = [started.encode() for started, _ in calls]
    completions = [completed.encode() for _, completed in calls]
    pairs = [line for pair in zip(starts, completions, strict=True) for line in pair][:LINES]
    turn = [
        line
        for at in range(0, LINES, 4)
        for line in (plain_2k.encode(), escaped.encode(), pairs[at], pairs[at + 1])
    ]
    return {
        "text 1 kB": Mix([plain_1k.encode()] * LINES),
        "text 2 kB": Mix([plain_2k.encode()] * LINES),
        "text 2 kB, many escapes": Mix([escaped.encode()] * LINES),
        "text 2 kB, all but ASCII escaped": Mix([all_escaped.encode()] * LINES),
        "text 2 kB, a field of a newer build": Mix([newer(plain_2k).encode()] * LINES),
        "tool completed 2 kB": Mix(completions, before=starts),
        "tool started 1 kB": Mix(starts),
        "tool started and completed": Mix(pairs),
        "text and tools": Mix(turn),
    }


def run_parser(parser: CursorParser, chunks: list[bytes]) -> None:
    for chunk in chunks:
        for event in parser.feed(chunk):
            if isinstance(event, Fault):
                raise SystemExit(f"the parser refused the benchmark's lines: {event}")


def run_loads(lines: list[bytes]) -> None:
    for line in lines:
        json.loads(line)


def microseconds_a_line(work: Callable[[], None]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return (time.process_time() - start) / LINES * 1e6


def measure(mix: Mix, chunk: int, rounds: int) -> dict[str, float]:
    stream = b"\n".join([*mix.lines, b""])
    chunks = [stream[start : start + chunk] for start in range(0, len(stream), chunk)]
    lines = stream.split(b"\n")[:-1]  # as many separate objects in memory as the parser meets
    parser_us, loads_us = [], []
    for _ in range(rounds):
        parser = CursorParser(SPEC)
        run_parser(parser, [b"\n".join([json.dumps(INIT).encode(), *mix.before, b""])])
        parser_us.append(microseconds_a_line(lambda: run_parser(parser, chunks)))  # noqa: B023
        loads_us.append(microseconds_a_line(lambda: run_loads(lines)))
    return {
        "bytes_a_line": round(len(stream) / LINES),
        "parser_us": round(statistics.median(parser_us), 2),
        "json_loads_us": round(statistics.median(loads_us), 2),
        "ratio": round(statistics.median(map(truediv, loads_us, parser_us)), 2),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=41)
    rounds = options.parse_args().rounds
    results = {
        f"reads of {chunk // 1024} KiB": {
            name: measure(mix, chunk, rounds) for name, mix in mixes().items()
        }
        for chunk in CHUNKS
    }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
