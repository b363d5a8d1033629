"""The rules of the Cursor stream, one behaviour a test."""

import json
from typing import Any

import pytest
from cursor_streams import (
    FIXTURES,
    INIT,
    RESULT,
    SESSION,
    THOUGHT_COMPLETED,
    delta,
    drifts,
    encoded,
    fault,
    kinds,
    line,
    only,
    play,
    started,
    stream,
    text,
    thought,
)

from agentsdock.model.codes import Code
from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import (
    Bounds,
    Init,
    Notice,
    ParserSpec,
    QueryAnswered,
    QueryOpened,
    Result,
    Text,
    Thought,
    ToolStarted,
    Unusable,
    Usage,
)


def bounded(**bounds: int) -> ParserSpec:
    return ParserSpec(bounds=Bounds(**bounds))


def texts(*lines: Any, spec: ParserSpec | None = None) -> list[str]:
    return [event.text for event in only(Text, play(stream(INIT, *lines), spec))]


# Lines


def test_whole_json_at_the_end_counts_without_a_line_end() -> None:
    assert kinds(play(stream(INIT) + encoded(RESULT))) == ["Init", "Result"]


def test_an_empty_stream_is_no_event_at_all() -> None:
    assert play(b"") == []


def test_the_end_is_told_once() -> None:
    parser = CursorParser()
    parser.feed(stream(INIT, thought("hm")))
    assert kinds(parser.end()) == ["Thought"]
    assert parser.end() == []
    assert parser.feed(stream(RESULT)) == []


@pytest.mark.parametrize(
    "noise",
    [
        b"\x1b[2K\x1b[1G",
        b"\x1b]0;a title\x07",
        b"\x1b]8;;http://x\x1b\\",
        b"\x1bPq#0\x1b\\",
        b"\x1b(B\x1b7\x1b=",
        b"\x07\x08",
    ],
)
def test_control_sequences_around_a_line_are_dropped(noise: bytes) -> None:
    data = b"".join(
        noise + encoded(each) + noise + b"\n" + noise + b"\n" for each in (INIT, RESULT)
    )
    parser = CursorParser()
    assert kinds(parser.feed(data)) == ["Init", "Result"]
    assert parser.facts.control_sequences > 0


def test_a_control_sequence_inside_of_an_object_is_not_dropped() -> None:
    broken = encoded(RESULT).replace(b"Done.", b"Do\x1b[0mne.")
    assert fault(play(stream(INIT, broken))).code is Code.BAD_LINE


def test_a_sequence_that_the_end_cut_is_a_fact_and_no_fault() -> None:
    parser = CursorParser()
    assert kinds(parser.feed(stream(INIT) + b"\x1b[2") + parser.end()) == ["Init"]
    assert parser.facts.cut_line_bytes == 3


@pytest.mark.parametrize(
    ("bad", "prose"),
    [
        (b"npm warn deprecated", "npm warn deprecated"),
        (b'["a", 1]', '["a", 1]'),
        (b'"text"', '"text"'),
        (b"null", "null"),
        (b'{"type":"user"} trailing', None),
        (b'{"type":"user"}{"type":"user"}', None),
        (b'{"type":"user"', None),
        (b"{'type':'user'}", None),
        (b'{"type":"user","n":NaN}', None),
        (b'{"type":"user","text":"\xff"}', None),
        (b'{"type":"user","message":"\xff"}', None),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_what_is_not_one_json_object_in_utf8_is_a_bad_line(bad: bytes, prose: str | None) -> None:
    told = fault(play(stream(INIT, bad, RESULT)))
    assert told.code is Code.BAD_LINE
    assert told.line == Unusable(size=len(bad), prose=prose)


def test_prose_is_shown_bounded_and_a_broken_object_is_not_shown() -> None:
    told = fault(play(stream(INIT, "word " * 1000)))
    assert told.line is not None
    assert told.line.prose == ("word " * 40)
    assert told.line.size == 5000
    secret = fault(play(stream(INIT, '{"password": "pear"')))
    assert secret.line is not None
    assert secret.line.prose is None
    assert "pear" not in secret.message


@pytest.mark.parametrize(
    "prompt",
    [
        "Run this command?  rm -r data  (y/n)",
        "`rm` is not in allowlist",
        "\u26a0 Workspace Trust Required",
        "Waiting for approval...",
        "PERMISSION REQUEST: write",
        "This tool requires confirmation.",
        "Approve this command",
        "Approval required",
        "Request approval from the user",
        '{"type": "Run this command',
    ],
)
def test_text_that_asks_a_person_is_an_approval_request(prompt: str) -> None:
    assert fault(play(stream(prompt))).code is Code.APPROVAL_REQUIRED
    assert fault(play(stream(INIT, prompt))).code is Code.APPROVAL_REQUIRED


def test_an_event_is_never_searched_for_such_words() -> None:
    said = "Approval required: run this command? It is not in allowlist."
    assert texts(text(said)) == [said]


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    raw = encoded(text("HERE")).replace(b"HERE", rb"a\ud83d b\uDE00 \ud83d\ude00 \\ud83d \u0041")
    assert texts(raw) == ["a\ufffd b\ufffd \U0001f600 \\ud83d A"]


def test_an_escaped_nul_and_line_separators_stay_text() -> None:
    said = "a\x00b\u2028c\u2029d\x85e"
    assert texts(text(said)) == [said]


def test_the_last_of_two_equal_keys_wins() -> None:
    assert texts(encoded(text("one"))[:-1] + b"," + encoded(text("two"))[1:]) == ["two"]


# Sessions


@pytest.mark.parametrize(
    "first", [line("user", message={}), text("Hi"), thought("Hm"), RESULT, started(), line("retry")]
)
def test_an_event_in_front_of_init_is_missing_init(first: dict[str, Any]) -> None:
    told = fault(play(stream(first, INIT, RESULT)))
    assert told.code is Code.MISSING_INIT
    assert first["type"] in told.message


def test_init_tells_session_folder_and_model() -> None:
    assert play(stream(INIT)) == [Init(SESSION, "/workspace/orchard", "Auto")]


@pytest.mark.parametrize("bad", [None, "", "-rf", "a b", "x" * 257, "a\n", 7])
def test_an_init_without_a_usable_id_is_unknown_schema(bad: Any) -> None:
    told = fault(play(stream({**INIT, "session_id": bad})))
    assert told.code is Code.UNKNOWN_SCHEMA
    assert "system/init" in told.message


def test_a_resume_has_to_be_answered_with_its_own_id() -> None:
    assert kinds(play(stream(INIT, RESULT), ParserSpec(resume_id=SESSION))) == ["Init", "Result"]
    told = play(stream(INIT, RESULT), ParserSpec(resume_id="another"))
    assert kinds(told) == ["Fault"]
    assert fault(told).code is Code.SESSION_MISMATCH


def test_a_later_event_of_another_session_is_a_mismatch() -> None:
    events = play(stream(INIT, {**text("Hi"), "session_id": "another"}, RESULT))
    assert kinds(events) == ["Init", "Fault"]
    assert fault(events).code is Code.SESSION_MISMATCH


def test_a_second_init_of_the_same_session_changes_nothing() -> None:
    assert kinds(play(stream(INIT, INIT, RESULT))) == ["Init", "Result"]
    other = {**INIT, "session_id": "another"}
    assert fault(play(stream(INIT, other))).code is Code.SESSION_MISMATCH


def test_events_without_a_session_id_are_fine() -> None:
    said = text("Hi")
    del said["session_id"]
    assert texts(said) == ["Hi"]


# Vocabulary


@pytest.mark.parametrize(
    ("type", "subtype"),
    [
        ("connection", "reconnecting"),
        ("connection", "reconnected"),
        ("retry", "starting"),
        ("retry", "resuming"),
        ("system", "task_notification"),
        ("system", "background_shell_timeout"),
    ],
)
def test_known_notices_are_signs_of_life_and_nothing_else(type: str, subtype: str) -> None:
    assert play(stream(INIT, line(type, subtype), RESULT))[1:-1] == [Notice(f"{type}/{subtype}")]


def test_the_echo_of_the_prompt_is_nothing() -> None:
    assert kinds(play(stream(INIT, line("user", message="whatever"), RESULT))) == ["Init", "Result"]


@pytest.mark.parametrize(
    ("type", "subtype", "named"),
    [
        ("toolcall", "started", "toolcall/started"),
        ("error", None, "error"),
        ("system", "weather", "system/weather"),
        ("thinking", "summary", "thinking/summary"),
        ("tool_call", "progress", "tool_call/progress"),
        ("interaction_query", "expired", "interaction_query/expired"),
        ("connection", "lost", "connection/lost"),
        ("retry", "failed", "retry/failed"),
        ("result", "partial", "result/partial"),
    ],
)
def test_an_unknown_type_or_subtype_ends_the_turn_and_is_named(
    type: str, subtype: str | None, named: str
) -> None:
    fields = {"tool_call": {}, "is_error": False, "result": ""}
    unknown = line(type, subtype, **fields)
    events = play(stream(INIT, unknown, RESULT))
    assert fault(events).code is Code.UNKNOWN_SCHEMA
    assert fault(events).message.startswith(f"{named}: ")
    told = fault(events).line
    assert told is not None
    assert (told.type, told.subtype, told.size) == (type, subtype, len(encoded(unknown)))


def test_a_renamed_event_is_a_loud_failure() -> None:
    data = (FIXTURES / "02-many-tools.jsonl").read_bytes().replace(b'"tool_call",', b'"toolcall",')
    told = fault(play(data))
    assert told.code is Code.UNKNOWN_SCHEMA
    assert "toolcall/started" in told.message


@pytest.mark.parametrize("type", [None, 5, [], {}])
def test_a_line_without_a_usable_type_is_unknown_schema(type: Any) -> None:
    told = fault(play(stream(INIT, {"type": type, "subtype": "odd"})))
    assert told.code is Code.UNKNOWN_SCHEMA
    assert told.line == Unusable(size=len(encoded({"type": type, "subtype": "odd"})), subtype="odd")


def test_the_name_of_an_unknown_type_is_bounded_and_printable() -> None:
    told = fault(play(stream(INIT, {"type": "\x1b[0m" + "x" * 100_000})))
    assert told.line is not None
    assert told.line.type is not None
    assert len(told.line.type) == 80
    assert len(told.message) < 200
    assert told.message.isprintable()


@pytest.mark.parametrize(
    "wrong",
    [
        text("x") | {"message": "x"},
        text("x") | {"message": {"content": "x"}},
        text("x") | {"message": {"content": [{"type": "text", "text": 5}]}},
        text("x") | {"message": {"content": ["x"]}},
        text("x") | {"session_id": 7},
        text("x") | {"model_call_id": {}},
        {"type": "assistant"},
        thought("x") | {"text": None},
        started() | {"tool_call": "ls"},
        started() | {"tool_call": {}},
        started() | {"tool_call": {"shellToolCall": "ls"}},
        started() | {"tool_call": {"shellToolCall": {}, "readToolCall": {}}},
        line("interaction_query", "request", query_type="q", query={}),
        line("interaction_query", "request", query_type="q", query=[]),
        RESULT | {"is_error": "false"},
        RESULT | {"is_error": None},
        RESULT | {"result": 5},
        RESULT | {"result": None},
        RESULT | {"subtype": None},
    ],
)
def test_a_known_field_of_the_wrong_shape_is_unknown_schema(wrong: dict[str, Any]) -> None:
    told = fault(play(stream(INIT, wrong, RESULT)))
    assert told.code is Code.UNKNOWN_SCHEMA
    assert told.message.startswith(wrong["type"])


def test_a_nesting_bomb_is_unknown_schema() -> None:
    bomb = b'{"type":"user","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert fault(play(stream(INIT, bomb))).code is Code.UNKNOWN_SCHEMA


def test_a_huge_number_in_a_field_that_nobody_reads_is_harmless() -> None:
    huge = encoded(RESULT).replace(b'"duration_ms":1', b'"duration_ms":' + b"9" * 6000)
    assert kinds(play(stream(INIT, huge))) == ["Init", "Result"]


def test_a_huge_number_in_a_field_that_is_read_is_unknown_schema() -> None:
    huge = encoded(delta("x")).replace(b'"timestamp_ms":1', b'"timestamp_ms":' + b"9" * 6000)
    assert fault(play(stream(INIT, huge))).code is Code.UNKNOWN_SCHEMA


# What is new but harmless


def test_unknown_fields_are_counted_once_and_change_nothing() -> None:
    lines = [text("a") | {"mood": 1}, text("b") | {"mood": {"x": []}}, RESULT | {"mood": None}]
    events = play(stream(INIT, *lines))
    assert drifts(events) == [("field", "assistant.mood"), ("field", "result.mood")]
    assert kinds(event for event in events if kinds([event]) != ["Drift"]) == [
        "Init",
        "Text",
        "Text",
        "Result",
    ]


def test_unknown_content_parts_are_counted_and_their_neighbours_shown() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image", "url": "x"},
        {"type": "text", "text": "b"},
    ]
    events = play(stream(INIT, line("assistant", message={"content": parts})))
    assert drifts(events) == [("type", "assistant.image")]
    assert [event.text for event in only(Text, events)] == ["ab"]


def test_what_is_counted_as_new_is_bounded() -> None:
    lines = [text("a") | {f"field{number}" + "x" * 500: 1} for number in range(500)]
    counted = drifts(play(stream(INIT, *lines)))
    assert len(counted) == 64
    assert max(len(name) for _, name in counted) == 80


# Text and thoughts


def test_deltas_are_replaced_by_their_whole_segment() -> None:
    whole = text("I'll print.", model_call_id="m", timestamp_ms=4)
    assert texts(delta("I'll "), delta("print"), whole) == ["I'll print."]
    assert texts(delta("I'll "), delta("print"), text("I'll print.")) == ["I'll print."]


def test_a_whole_segment_may_carry_a_timestamp() -> None:
    assert texts(text("One.", model_call_id="m", timestamp_ms=4), text("Two.")) == ["One.", "Two."]


@pytest.mark.parametrize("after", [started(), RESULT, None, "prose"])
def test_deltas_without_their_segment_are_not_lost(after: Any) -> None:
    events = play(stream(INIT, delta("Half "), delta("said"), *([after] if after else [])))
    assert events[1] == Text("Half said", 9)


def test_an_empty_segment_is_nothing_and_takes_nothing_away() -> None:
    assert texts(text("")) == []
    assert texts(delta("kept"), text("")) == ["kept"]


def test_text_is_bounded_and_says_so() -> None:
    (said,) = only(Text, play(stream(INIT, text("x" * 500)), bounded(text_chars=100)))
    assert said.chars == 500
    assert len(said.text) == 100
    assert said.text.endswith("x\n[trimmed: the start of 500 characters]")
    pieces = [delta("y" * 30)] * 10
    (said,) = only(Text, play(stream(INIT, *pieces), bounded(text_chars=100)))
    assert (said.chars, len(said.text)) == (300, 100)
    assert said.text.endswith("[trimmed: the start of 300 characters]")


def test_text_at_its_bound_is_whole() -> None:
    assert texts(text("x" * 100), spec=bounded(text_chars=100)) == ["x" * 100]
    assert texts(delta("x" * 60), delta("y" * 40), spec=bounded(text_chars=100)) == [
        "x" * 60 + "y" * 40
    ]


def test_a_thought_is_one_event_at_its_end() -> None:
    events = play(stream(INIT, thought("91 "), thought(""), thought("= 7 x 13"), THOUGHT_COMPLETED))
    assert events[1:] == [Thought("91 = 7 x 13", 11)]


def test_a_completed_thought_without_words_is_nothing() -> None:
    assert play(stream(INIT, THOUGHT_COMPLETED, thought(""), THOUGHT_COMPLETED))[1:] == []


@pytest.mark.parametrize("after", [text("Hi"), delta("Hi"), started(), RESULT, None, "prose"])
def test_an_open_thought_comes_before_whatever_follows(after: Any) -> None:
    events = play(stream(INIT, thought("Hm"), *([after] if after else [])))
    assert events[1] == Thought("Hm", 2)
    assert len(only(Thought, events)) == 1


def test_a_thought_is_bounded_and_says_so() -> None:
    pieces = [thought("x" * 30)] * 10
    (told,) = only(Thought, play(stream(INIT, *pieces), bounded(thought_chars=100)))
    assert (told.chars, len(told.text)) == (300, 100)
    assert told.text.endswith("[trimmed: the start of 300 characters]")


# Queries


def query(subtype: str, query_id: Any, kind: Any = "webFetchRequestQuery") -> dict[str, Any]:
    field = "query" if subtype == "request" else "response"
    return line("interaction_query", subtype, query_type=kind, **{field: {"id": query_id}})


def test_a_query_is_opened_and_answered_under_its_id() -> None:
    events = play(stream(INIT, query("request", 0), query("response", 0)))
    assert events[1:] == [QueryOpened("0", "webFetchRequestQuery"), QueryAnswered("0")]


def test_a_query_kind_that_is_no_word_is_not_repeated() -> None:
    events = play(stream(INIT, query("request", "q", "<b>"), query("request", "r", 5)))
    assert [event.kind for event in only(QueryOpened, events)] == ["unknown", "unknown"]


@pytest.mark.parametrize("query_id", ["", "x" * 241, [], {}, 1.5])
def test_a_query_without_a_usable_id_is_unknown_schema(query_id: Any) -> None:
    assert fault(play(stream(INIT, query("request", query_id)))).code is Code.UNKNOWN_SCHEMA


# Results


def result_of(*lines: Any, spec: ParserSpec | None = None) -> Result:
    (told,) = only(Result, play(stream(INIT, *lines), spec))
    assert isinstance(told, Result)
    return told


def test_a_success_carries_its_text() -> None:
    assert result_of(RESULT) == Result(is_error=False, text="Done.")


@pytest.mark.parametrize("failure", [{"is_error": True}, {"subtype": "error"}])
def test_either_sign_of_an_error_is_an_error_without_a_text(failure: dict[str, Any]) -> None:
    told = result_of(RESULT | {"result": "quota spent"} | failure)
    assert told == Result(is_error=True, text="", message="quota spent")


def test_an_error_needs_no_words_and_long_ones_are_cut() -> None:
    assert result_of(RESULT | {"is_error": True, "result": None}).message is None
    message = result_of(RESULT | {"is_error": True, "result": "x" * 50_000}).message
    assert message is not None
    assert len(message) == 4_000


def test_an_empty_result_falls_back_to_what_was_said() -> None:
    empty = RESULT | {"result": ""}
    assert result_of(text("One."), delta("Two"), delta(" and"), empty).text == "One.Two and"
    assert result_of(empty).text == ""


def test_the_final_text_is_bounded_either_way() -> None:
    spec = bounded(accumulated_text_chars=100)
    for lines in (
        [RESULT | {"result": "x" * 300}],
        [text("x" * 60)] * 5 + [RESULT | {"result": ""}],
    ):
        final = result_of(*lines, spec=spec).text
        assert len(final) == 100
        assert final.endswith("[trimmed: the start of 300 characters]")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 0},
            Usage(1, 2, 3, 0),
        ),
        ({"input_tokens": 1, "cached_input_tokens": 3}, Usage(1, None, 3, None)),
        ({"inputTokens": -1, "outputTokens": "2", "cacheReadTokens": True}, None),
        ({"outputTokens": 10**400}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_is_read_in_either_spelling_and_never_fails(usage: Any, expected: Any) -> None:
    assert result_of(RESULT | {"usage": usage}).usage == expected


@pytest.mark.parametrize(
    "later",
    [
        RESULT,
        RESULT | {"is_error": True},
        "prose: approval required",
        '{"type": "toolcall"}',
        {**text("x"), "session_id": "another"},
        b"\xff" * 50 + b"x" * 5000,
        thought("late"),
    ],
)
def test_nothing_after_a_result_changes_anything(later: Any) -> None:
    parser = CursorParser(bounded(line_bytes=2000, stream_lines=5, stream_bytes=4000))
    events = parser.feed(stream(INIT, RESULT))
    after = parser.feed(stream(*[later] * 10)) + parser.end()
    assert kinds(events) == ["Init", "Result"]
    assert after == []
    assert parser.facts.bytes == len(stream(INIT, RESULT, *[later] * 10))


def test_nothing_follows_a_fault() -> None:
    parser = CursorParser()
    assert kinds(parser.feed(stream(INIT, "prose", text("Hi"), RESULT))) == ["Init", "Fault"]
    assert parser.feed(stream(text("Hi"), "prose", RESULT)) == []
    assert parser.end() == []
    assert parser.facts.lines == 7


# Ceilings


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        ({"line_bytes": 500}, Code.LINE_TOO_LONG),
        ({"stream_lines": 3}, Code.OUTPUT_LIMIT),
        ({"stream_bytes": 1000}, Code.OUTPUT_LIMIT),
    ],
)
def test_a_ceiling_ends_the_turn_after_the_lines_before_it(
    bounds: dict[str, int], code: Code
) -> None:
    events = play(stream(INIT, text("Hi"), delta("half"), text("x" * 900)), bounded(**bounds))
    assert kinds(events) == ["Init", "Text", "Text", "Fault"]
    assert events[2] == Text("half", 4)
    assert fault(events).code is code


def test_the_call_over_the_ceiling_is_not_shown() -> None:
    calls = [started(f"c{number}") for number in range(4)]
    events = play(stream(INIT, *calls, RESULT), bounded(tool_calls=3))
    assert [event.call_id for event in only(ToolStarted, events)] == ["c0", "c1", "c2"]
    assert fault(events).code is Code.TOOL_LIMIT


def test_a_line_of_30_megabytes_is_read_and_its_text_cut() -> None:
    data = json.dumps(text("x" * 30_000_000)).encode()
    parser = CursorParser()
    events = parser.feed(stream(INIT))
    for start in range(0, len(data), 65_536):
        events += parser.feed(data[start : start + 65_536])
    events += parser.feed(b"\n")
    (said,) = only(Text, events)
    assert said.chars == 30_000_000
    assert len(said.text) == 131_072


def test_a_line_that_never_ends_is_told_when_it_passes_the_bound() -> None:
    parser = CursorParser()
    parser.feed(stream(INIT))
    told = [event for _ in range(70) for event in parser.feed(b"x" * 1_000_000)]
    assert fault(told).code is Code.LINE_TOO_LONG
    assert parser.end() == []
    assert parser.facts.bytes == len(stream(INIT)) + 70_000_000
