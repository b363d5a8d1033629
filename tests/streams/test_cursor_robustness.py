"""Whatever bytes come, and in whatever pieces: no exception, one fault at most, bounded memory."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cursor_streams import (
    FIXTURES,
    INIT,
    RESULT,
    completed,
    delta,
    encoded,
    kinds,
    line,
    only,
    pieces_of,
    play,
    play_pieces,
    started,
    stream,
    text,
    thought,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import (
    Bounds,
    Fault,
    Init,
    ParserSpec,
    Result,
    StreamEvent,
    Text,
    ToolFinished,
    ToolStarted,
)

SMALL = ParserSpec(
    bounds=Bounds(
        line_bytes=4096,
        stream_lines=60,
        stream_bytes=100_000,
        text_chars=50,
        accumulated_text_chars=80,
        tool_calls=4,
        tool_chars=120,
        thought_chars=40,
    )
)
MUTABLE = sorted(path for path in FIXTURES.glob("*.jsonl") if 0 < path.stat().st_size < 30_000)


def check(events: list[StreamEvent]) -> None:
    """What holds for every stream, however broken."""
    faults = only(Fault, events)
    assert len(faults) <= 1
    assert faults == events[-1:] or not faults
    results = only(Result, events)
    assert len(results) <= 1
    assert results == events[-1:] or not results
    inits = only(Init, events)
    assert len(inits) <= 1
    real = [event for event in events if kinds([event])[0] not in ("Drift", "Fault")]
    assert real[:1] == inits
    finished = [event.call_id for event in only(ToolFinished, events)]
    assert len(finished) == len(set(finished))
    begun = [event.call_id for event in only(ToolStarted, events)]
    assert len(begun) == len(set(begun))
    for event in events:
        msgspec.json.encode(event)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = [
    "type subtype session_id message content text call_id tool_call shellToolCall args result",
    "success rejected error query response id query_type is_error usage timestamp_ms",
    "model_call_id toolCallId interleavedOutput exitCode plan createPlanToolCall function",
]
field_names = st.sampled_from(" ".join(NAMES).split())


@st.composite
def odd_lines(draw: Callable[..., Any]) -> bytes:
    """A known line with a field or two replaced, removed or added at some depth."""
    known = draw(
        st.sampled_from(
            [
                INIT,
                RESULT,
                RESULT | {"usage": {"inputTokens": 3}},
                text("Hello \u2028 there"),
                delta("Hel"),
                thought("Hm"),
                started(command="ls", timeout=3),
                started("p", "createPlanToolCall", plan="# Plan"),
                completed({"success": {"stdout": "x", "exitCode": 0}}),
                completed({"rejected": {"reason": ""}}, "d"),
                line("interaction_query", "request", query_type="q", query={"id": 1}),
                line("interaction_query", "response", query_type="q", response={"id": 1}),
                line("connection", "reconnecting", attempt=1),
            ]
        )
    )
    changed = json.loads(json.dumps(known))
    for _ in range(draw(st.integers(0, 2))):
        target = changed
        while draw(st.booleans()):
            inner = [value for value in target.values() if isinstance(value, dict) and value]
            if not inner:
                break
            target = draw(st.sampled_from(inner))
        name = draw(st.sampled_from(sorted(target)) | field_names)
        if draw(st.booleans()):
            target.pop(name, None)
        else:
            target[name] = draw(json_values)
    return json.dumps(changed, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


noise = st.sampled_from(
    [b"", b"\r", b"\x1b[0m", b"\x1b]0;t\x07", b"\xef\xbb\xbf", b"prose", b"\x1b[", b"\xff", b"[]"]
)
streams = st.lists(st.tuples(noise, odd_lines(), noise, st.sampled_from([b"\n", b"\n", b""]))).map(
    lambda lines: stream(INIT) + b"".join(b"".join(each) for each in lines)
)


@settings(max_examples=120, deadline=None)
@given(data=streams, seed=st.integers(), spec=st.sampled_from([SMALL, ParserSpec()]))
def test_any_split_of_any_stream_gives_the_same_events(
    data: bytes, seed: int, spec: ParserSpec
) -> None:
    whole = play(data, spec)
    check(whole)
    assert play_pieces(pieces_of(data, seed), spec) == whole
    assert play_pieces([data[at : at + 1] for at in range(len(data))], spec) == whole


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), before=st.sampled_from([b"", stream(INIT)]))
def test_any_bytes_are_survived(data: bytes, before: bytes) -> None:
    events = play(before + data)
    check(events)
    assert play_pieces([(before + data)[at : at + 1] for at in range(len(before + data))]) == events


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_broken_recordings_are_survived_alike_at_any_split(draw: st.DataObject) -> None:
    path = draw.draw(st.sampled_from(MUTABLE))
    lines = path.read_bytes().splitlines(keepends=True)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(lines) - 1))
        how = draw.draw(st.sampled_from(["drop", "repeat", "swap", "cut", "flip"]))
        if how == "drop" and len(lines) > 1:
            del lines[at]
        elif how == "repeat":
            lines.insert(draw.draw(st.integers(0, len(lines))), lines[at])
        elif how == "swap":
            other = draw.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif how == "cut":
            lines[at] = lines[at][: draw.draw(st.integers(0, len(lines[at])))]
        elif lines[at]:
            where = draw.draw(st.integers(0, len(lines[at]) - 1))
            flipped = bytes([lines[at][where] ^ (1 << draw.draw(st.integers(0, 7)))])
            lines[at] = lines[at][:where] + flipped + lines[at][where + 1 :]
    data = b"".join(lines)
    events = play(data)
    check(events)
    assert play_pieces(pieces_of(data, draw.draw(st.integers()))) == events


@pytest.mark.parametrize("path", MUTABLE, ids=lambda path: path.name)
def test_every_prefix_of_a_stream_gives_a_prefix_of_its_events(path: Any) -> None:
    """Nothing is told before it is known: cutting the input only cuts the output."""
    data = path.read_bytes()
    parser = CursorParser()
    whole = parser.feed(data)
    told: list[StreamEvent] = []
    parser = CursorParser()
    for piece in pieces_of(data, 7):
        told += parser.feed(piece)
        assert told == whole[: len(told)]


@pytest.mark.parametrize("name", ["line", "deltas", "thoughts", "segments", "late", "names"])
def test_memory_stays_within_the_bounds(name: str) -> None:
    """A hostile stream of 16 MB against bounds of some kB: what is held is some kB."""
    spec = ParserSpec(bounds=Bounds(line_bytes=300_000, text_chars=5000, thought_chars=5000))
    wide = "\U0001f600" * 10_000
    endless = {
        "line": b'{"type":"' + b"x" * 250_000,
        "deltas": stream(delta(wide)),
        "thoughts": stream(thought(wide)),
        "segments": stream(text(wide)),
        "late": stream(RESULT, text(wide)),
        "names": stream(*(text("x") | {f"{number}" * 1000: 1} for number in range(40))),
    }[name]
    parser = CursorParser(spec)
    parser.feed(stream(INIT))
    tracemalloc.start()
    try:
        for _ in range(16_000_000 // len(endless)):
            parser.feed(endless)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # 262,144 characters of four bytes each may be kept for the final text.
    assert held < 2_000_000


@pytest.mark.parametrize("piece", [delta("x" * 8_000_000), thought("x" * 8_000_000)])
def test_one_long_piece_is_not_held_beyond_its_bound(piece: dict[str, Any]) -> None:
    parser = CursorParser()
    data = stream(INIT, piece)
    tracemalloc.start()
    try:
        parser.feed(data)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 1_000_000


def test_a_line_of_a_million_fields_is_skipped_over() -> None:
    many = b",".join(b'"f%d":0' % number for number in range(300_000))
    parser = CursorParser()
    data = stream(INIT, encoded(text("Hi"))[:-1] + b"," + many + b"}", RESULT)
    tracemalloc.start()
    try:
        events = parser.feed(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kinds(events) == ["Init", "Text", "Result"]
    assert peak < 3 * len(data)


def test_what_was_said_is_kept_once_and_whole() -> None:
    """Each segment and each piece comes out exactly once, in order, whatever stands between."""
    lines: list[dict[str, Any]] = []
    said = []
    for number in range(50):
        said.append(f"segment {number} ")
        lines += [delta(piece) for piece in (said[-1][:4], said[-1][4:])]
        lines.append(text(said[-1]) if number % 3 == 2 else started(f"c{number}"))
        lines.append(thought("between"))
    events = play(stream(INIT, *lines, RESULT | {"result": ""}))
    assert [event.text for event in only(Text, events)] == said
    assert only(Result, events)[0].text == "".join(said)


def test_a_character_cut_between_two_reads_stays_whole() -> None:
    data = stream(INIT) + encoded(text("h\u00e9 \u2028 \U0001f600")) + b"\n"
    for at in range(len(data)):
        (said,) = only(Text, play_pieces([data[:at], data[at:]]))
        assert said.text == "h\u00e9 \u2028 \U0001f600"
