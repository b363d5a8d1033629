"""Builds Cursor streams line by line, and plays them in whatever pieces a test wants."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import Drift, Fault, ParserSpec, StreamEvent

FIXTURES = Path(__file__).parents[2] / "fixtures" / "cursor"
PUBLIC = Path(__file__).parents[3] / "shared" / "fixtures" / "public" / "cursor"
SESSION = "0f3a1c52-9d5e-4b7a-8a51-7f1a2f6d9b10"


def line(type: str, subtype: str | None = None, **fields: Any) -> dict[str, Any]:
    told = {"type": type, "session_id": SESSION, **fields}
    return told if subtype is None else {"type": type, "subtype": subtype, **told}


INIT = line("system", "init", cwd="/workspace/orchard", model="Auto")
RESULT = line("result", "success", is_error=False, result="Done.", duration_ms=1)


def text(said: str, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": said}]}
    return line("assistant", message=message, **fields)


def delta(said: str) -> dict[str, Any]:
    return text(said, timestamp_ms=1)


def thought(said: str) -> dict[str, Any]:
    return line("thinking", "delta", text=said, timestamp_ms=1)


THOUGHT_COMPLETED = line("thinking", "completed", timestamp_ms=1)


def call(subtype: str, call_id: Any, kind: str, **body: Any) -> dict[str, Any]:
    return line("tool_call", subtype, call_id=call_id, tool_call={kind: body})


def started(call_id: Any = "c1", kind: str = "shellToolCall", **args: Any) -> dict[str, Any]:
    return call("started", call_id, kind, args=args)


def completed(
    result: Any, call_id: Any = "c1", kind: str = "shellToolCall", **body: Any
) -> dict[str, Any]:
    return call("completed", call_id, kind, result=result, **body)


def stream(*lines: dict[str, Any] | str | bytes) -> bytes:
    """Lines as bytes: objects as compact JSON, texts and bytes as they are."""
    return b"".join(encoded(each) + b"\n" for each in lines)


def encoded(each: dict[str, Any] | str | bytes) -> bytes:
    if isinstance(each, dict):
        return json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode()
    return each.encode() if isinstance(each, str) else each


def play(data: bytes, spec: ParserSpec | None = None) -> list[StreamEvent]:
    return play_pieces([data], spec)


def play_pieces(pieces: Iterable[bytes], spec: ParserSpec | None = None) -> list[StreamEvent]:
    parser = CursorParser(spec)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.end()


def pieces_of(data: bytes, seed: int, most: int = 400) -> list[bytes]:
    """The same bytes in pieces of random sizes."""
    choose = random.Random(seed)
    pieces = []
    while data:
        size = choose.randint(1, most)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def kinds(events: Iterable[StreamEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def only(kind: type[Any], events: Iterable[StreamEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def fault(events: list[StreamEvent]) -> Fault:
    """The one fault, which has to come last."""
    assert only(Fault, events) == events[-1:], events
    last = events[-1]
    assert isinstance(last, Fault)
    return last


def drifts(events: Iterable[StreamEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.name) for event in only(Drift, events)]
