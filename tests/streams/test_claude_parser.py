"""What Claude Code prints in print mode, as neutral events."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdock.model.codes import Code
from agentsdock.streams.claude import ClaudeParser
from agentsdock.streams.neutral import (
    Bounds,
    Drift,
    Fault,
    Init,
    Notice,
    Outcome,
    ParserSpec,
    QueryAnswered,
    QueryOpened,
    Result,
    Resumed,
    StreamEvent,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"
ROWS = [
    row
    for row in json.loads((FIXTURES / "index.json").read_bytes())
    if "--input-format" not in row["argv"]
]
BYTEWISE_LIMIT = 20_000

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])

ID = "6f2c2f0e-1111-4222-8333-944445555666"
INIT = {"type": "system", "subtype": "init", "session_id": ID, "cwd": "/w", "model": "m"}
DONE = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "Done.",
    "session_id": ID,
}
FAILED = {**DONE, "is_error": True, "result": "API Error: 500"}


def said(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {"id": "msg_1", "model": "m", "content": list(blocks)},
        "session_id": ID,
        "parent_tool_use_id": None,
        **fields,
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool_use(call_id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def tool_result(call_id: str, content: Any = "", **fields: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "session_id": ID}


def delta(words: str, **fields: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": words}}
    return {"type": "stream_event", "event": event, "session_id": ID, **fields}


MESSAGE_START = {
    "type": "stream_event",
    "event": {"type": "message_start", "message": {"id": "msg_2"}},
    "session_id": ID,
}


def play(
    data: bytes, pieces: list[int] | None = None, spec: ParserSpec | None = None
) -> list[StreamEvent]:
    """The events of ``data``, fed in pieces that end at the given offsets."""
    parser = ClaudeParser(spec or ParserSpec())
    events: list[StreamEvent] = []
    cuts = [0, *sorted(pieces or []), len(data)]
    for start, stop in itertools.pairwise(cuts):
        events += parser.feed(data[start:stop])
    return events + parser.end()


def tell(*lines: dict[str, Any] | str, spec: ParserSpec | None = None) -> list[StreamEvent]:
    written = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return play("".join(f"{line}\n" for line in written).encode(), spec=spec)


def only(events: list[StreamEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def fault(events: list[StreamEvent]) -> Code | None:
    faults = only(events, Fault)
    assert len(faults) <= 1
    assert not faults or events[-1] is faults[0]
    return faults[0].code if faults else None


def segments(events: list[StreamEvent]) -> list[str]:
    return [event.text for event in only(events, Text)]


def recorded(row: dict[str, Any]) -> tuple[bytes, ParserSpec]:
    forked = "--fork-session" in row["argv"]
    return (
        (FIXTURES / row["file"]).read_bytes(),
        ParserSpec(resume_id=None if forked else row["resumed"]),
    )


# Recorded streams.


@each_row
def test_a_recorded_stream_means_what_its_index_says(row: dict[str, Any]) -> None:
    data, spec = recorded(row)
    events = play(data, spec=spec)
    results = only(events, Result)
    assert [result.is_error for result in results] == [told["is_error"] for told in row["results"]]
    assert fault(events) is None
    exited_well = row["exit_code"] in (0, "timeout")
    succeeded = exited_well and bool(results) and not any(result.is_error for result in results)
    # A row that was killed because it did not leave after its result is a success all the same.
    overran = row["exit_code"] == "timeout" and bool(row["results"])
    assert succeeded == (row["verdict"] == "ok" or overran)
    if succeeded:
        assert results[-1].text == row["final_text"]
    elif results:
        assert results[-1].text == ""
        assert results[-1].message


@each_row
def test_a_recorded_refusal_counts_as_rejected(row: dict[str, Any]) -> None:
    data, spec = recorded(row)
    finished = only(play(data, spec=spec), ToolFinished)
    rejected = [event for event in finished if event.outcome is Outcome.REJECTED]
    assert len(rejected) == row["permission_denials"]


@each_row
def test_a_recorded_stream_holds_nothing_new(row: dict[str, Any]) -> None:
    data, spec = recorded(row)
    assert only(play(data, spec=spec), Drift) == []


@each_row
def test_a_recorded_stream_gives_the_same_events_at_any_split(row: dict[str, Any]) -> None:
    data, spec = recorded(row)
    whole = play(data, spec=spec)
    dice = random.Random(row["file"])
    for _ in range(3):
        pieces = [dice.randrange(len(data) + 1) for _ in range(40)]
        assert play(data, pieces, spec) == whole
    if len(data) <= BYTEWISE_LIMIT:
        assert play(data, list(range(len(data))), spec) == whole


def test_a_second_init_after_a_result_resumes_the_turn() -> None:
    events = play((FIXTURES / "bg-wait-exit.jsonl").read_bytes())
    marks = [type(event) for event in events if isinstance(event, Init | Result | Resumed)]
    assert marks == [Init, Result, Resumed, Result]
    assert segments(events) == ["It runs in the background.", "All done."]


def test_an_init_before_the_result_of_the_turn_before_keeps_the_process_at_work() -> None:
    events = play((FIXTURES / "subagent.jsonl").read_bytes())
    marks = [type(event) for event in events if isinstance(event, Init | Result | Resumed)]
    assert marks == [Init, Result, Resumed, Result]


def test_what_a_subagent_says_is_a_thought_and_no_segment() -> None:
    events = play((FIXTURES / "subagent.jsonl").read_bytes())
    assert segments(events) == ["The helper has answered.", "All done."]
    thoughts = [event.text for event in only(events, Thought)]
    assert thoughts == ["Running it.", "The command has run."]
    assert [event.name for event in only(events, ToolFinished)] == ["Agent", "Bash"]


@pytest.mark.parametrize("version", ["", "-v2.1.197"])
def test_partial_messages_change_no_segment(version: str) -> None:
    whole = play((FIXTURES / f"plain{version}.jsonl").read_bytes())
    partial = play((FIXTURES / f"plain-partial{version}.jsonl").read_bytes())
    assert segments(whole) == segments(partial) != []


def test_a_dropped_attempt_is_shown_once_when_it_is_made_anew() -> None:
    events = play((FIXTURES / "err-drop-once-partial.jsonl").read_bytes())
    assert segments(events) == ["Partial answer, then the line is cut"]


def test_an_api_failure_is_told_by_the_result_alone() -> None:
    for name in ("err-500.jsonl", "err-500-v2.1.197.jsonl"):
        events = play((FIXTURES / name).read_bytes())
        assert segments(events) == []
        (result,) = only(events, Result)
        assert result.message.startswith("API Error: 500")


def test_the_exit_status_of_a_failed_command_is_told() -> None:
    (finished,) = only(play((FIXTURES / "shell-fails.jsonl").read_bytes()), ToolFinished)
    assert (finished.outcome, finished.exit_code) == (Outcome.FAILED, 3)
    assert finished.output == "Exit code 3\nout\nerr"


# Identity and order.


def test_init_tells_session_directory_and_model() -> None:
    assert tell(INIT)[0] == Init(ID, "/w", "m")


@pytest.mark.parametrize("bad", [None, "", "a b", "-x", "x" * 300])
def test_an_unusable_session_id_is_unknown_schema(bad: str | None) -> None:
    assert fault(tell({**INIT, "session_id": bad})) is Code.UNKNOWN_SCHEMA


def test_system_lines_may_come_before_init() -> None:
    early = {"type": "system", "subtype": "status", "status": "compacting", "session_id": ID}
    hook = {"type": "system", "subtype": "hook_started", "hook_name": "SessionStart"}
    events = tell(early, hook, INIT, DONE)
    assert fault(events) is None
    assert len(only(events, Init)) == 1


@pytest.mark.parametrize(
    "line", [said(text("Hi")), tool_result("t1"), delta("Hi"), DONE], ids=lambda line: line["type"]
)
def test_activity_before_init_is_missing_init(line: dict[str, Any]) -> None:
    assert fault(tell(line)) is Code.MISSING_INIT


def test_an_error_result_needs_no_init() -> None:
    refused = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "errors": ["No conversation found", "Try again"],
        "session_id": "99999999-9999-4999-8999-999999999999",
    }
    (result,) = tell(refused, spec=ParserSpec(resume_id=ID))
    assert result == Result(True, message="No conversation found; Try again")


def test_a_resume_must_be_answered_by_the_same_session() -> None:
    assert fault(tell(INIT, DONE, spec=ParserSpec(resume_id=ID))) is None
    assert fault(tell(INIT, spec=ParserSpec(resume_id="other"))) is Code.SESSION_MISMATCH


def test_a_line_of_another_session_is_a_mismatch() -> None:
    assert fault(tell(INIT, said(text("Hi"), session_id="other"))) is Code.SESSION_MISMATCH
    assert fault(tell(INIT, {**INIT, "session_id": "other"})) is Code.SESSION_MISMATCH


def test_a_line_without_a_session_id_is_fine() -> None:
    assert segments(tell(INIT, said(text("Hi"), session_id=None), DONE)) == ["Hi"]


# Results.


def test_the_flag_tells_a_failure_whatever_the_subtype_says() -> None:
    events = tell(INIT, FAILED)
    assert events[-1] == Result(True, message="API Error: 500")


def test_an_error_subtype_is_a_failure_whatever_the_flag_says() -> None:
    (result,) = only(tell(INIT, {**DONE, "subtype": "error_max_turns", "result": None}), Result)
    assert result == Result(True, message="error_max_turns")


def test_a_success_may_have_an_empty_text_and_takes_none_from_the_segments() -> None:
    events = tell(INIT, said(text("Earlier.")), {**DONE, "result": ""})
    assert events[-1] == Result(False, text="")


@pytest.mark.parametrize(
    "broken", [{"is_error": "no"}, {"is_error": None}, {"result": 3}, {"result": None}]
)
def test_a_result_of_the_wrong_shape_is_unknown_schema(broken: dict[str, Any]) -> None:
    assert fault(tell(INIT, {**DONE, **broken})) is Code.UNKNOWN_SCHEMA


def test_a_result_without_its_flag_is_unknown_schema() -> None:
    line = {name: value for name, value in DONE.items() if name != "is_error"}
    assert fault(tell(INIT, line)) is Code.UNKNOWN_SCHEMA


def test_tokens_and_cost_come_with_the_result() -> None:
    usage = {
        "input_tokens": 3,
        "output_tokens": 5,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 11,
    }
    (result,) = only(tell(INIT, {**DONE, "usage": usage, "total_cost_usd": 0.25}), Result)
    told = result.usage
    assert (told.input_tokens, told.output_tokens) == (3, 5)
    assert (told.cache_read_tokens, told.cache_write_tokens) == (7, 11)
    assert told.cost_usd == 0.25


@pytest.mark.parametrize(
    "odd", ['"many"', "[1]", '{"input_tokens": -1}', '{"input_tokens": 1e400}']
)
def test_odd_accounting_costs_only_the_accounting(odd: str) -> None:
    line = json.dumps(DONE)[:-1] + f', "usage": {odd}, "total_cost_usd": "free"}}'
    assert tell(INIT, line)[-1] == Result(False, text="Done.")


def test_noise_after_a_result_changes_nothing() -> None:
    late = [said(text("Late.")), tool_result("t1"), delta("late"), "prose", '{"type":"later"}']
    stranger = {**INIT, "session_id": "other"}
    events = tell(INIT, said(tool_use("t1")), DONE, *late, stranger)
    assert fault(events) is None
    after = events[events.index(only(events, Result)[0]) + 1 :]
    assert only(after, Notice) == after


def test_noise_after_a_result_does_not_deafen_the_next_turn() -> None:
    events = tell(INIT, DONE, "prose", INIT, said(text("More.")), {**DONE, "result": "More."})
    assert [type(event) for event in events] == [Init, Result, Resumed, Text, Result]
    assert fault(tell(INIT, DONE, INIT, "prose")) is Code.BAD_LINE


def test_a_late_error_result_counts_without_an_init_of_its_own() -> None:
    events = tell(INIT, DONE, FAILED)
    assert [type(event) for event in events] == [Init, Result, Resumed, Result]


# Text.


def test_streamed_text_that_never_came_whole_is_told_at_the_end() -> None:
    events = tell(INIT, delta("Partial "), delta("answer"))
    assert events[-1] == Text("Partial answer", 14)
    assert segments(tell(INIT, delta("Partial"), "prose")) == ["Partial"]
    assert segments(tell(INIT, delta("Partial"), FAILED)) == ["Partial"]


def test_the_whole_message_wins_over_its_deltas() -> None:
    assert segments(tell(INIT, delta("Par"), said(text("Partial")), DONE)) == ["Partial"]


def test_deltas_of_an_abandoned_message_are_dropped() -> None:
    lines = [delta("First try"), MESSAGE_START, delta("Second")]
    assert segments(tell(INIT, *lines)) == ["Second"]


def test_deltas_of_a_subagent_are_no_text_of_the_answer() -> None:
    sub = delta("sub", parent_tool_use_id="t1")
    inner = said(text("sub"), parent_tool_use_id="t1")
    assert segments(tell(INIT, delta("Main"), sub, inner)) == ["Main"]


def test_words_on_an_api_failure_survive_a_result_that_never_comes() -> None:
    synthetic = said(text("API Error: 500"), error="server_error")
    synthetic["message"]["model"] = "<synthetic>"
    assert segments(tell(INIT, synthetic)) == ["API Error: 500"]
    assert segments(tell(INIT, synthetic, FAILED)) == []
    assert segments(tell(INIT, delta("Partial"), synthetic, FAILED)) == ["Partial"]


def test_a_message_that_is_a_plain_string_is_text() -> None:
    line = said()
    line["message"]["content"] = "Hi"
    assert segments(tell(INIT, line)) == ["Hi"]


def test_a_thinking_block_is_a_thought() -> None:
    (thought,) = only(tell(INIT, said({"type": "thinking", "thinking": "Hm."})), Thought)
    assert thought == Thought("Hm.", 3)


def test_empty_blocks_are_not_told() -> None:
    assert tell(INIT, said(text(""), {"type": "thinking", "thinking": ""})) == tell(INIT)


def test_long_text_is_cut_and_its_true_length_told() -> None:
    spec = ParserSpec(bounds=Bounds(text_chars=100, accumulated_text_chars=200))
    long = "x" * 1000
    events = tell(INIT, said(text(long)), {**DONE, "result": long}, spec=spec)
    (shown,) = only(events, Text)
    assert (len(shown.text), shown.chars) == (100, 1000)
    assert len(only(events, Result)[0].text) == 200
    (partial,) = only(tell(INIT, delta(long), spec=spec), Text)
    assert (len(partial.text), partial.chars) == (100, 1000)


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    line = json.dumps(said(text("@"))).replace("@", r"a\ud83db")
    assert segments(tell(INIT, line, DONE)) == ["a\ufffdb"]


# Tools.


def test_a_call_is_told_with_its_input_and_its_declared_timeout() -> None:
    use = tool_use("t1", command="sleep 9", timeout=9000)
    (started,) = only(tell(INIT, said(use)), ToolStarted)
    assert started == ToolStarted("t1", "Bash", {"command": "sleep 9", "timeout": 9000}, 9.0)


@pytest.mark.parametrize("timeout", [0, -1, True, "9000", None])
def test_a_useless_timeout_is_none(timeout: Any) -> None:
    (started,) = only(tell(INIT, said(tool_use("t1", timeout=timeout))), ToolStarted)
    assert started.timeout_seconds is None


def test_a_tool_that_is_no_shell_declares_no_timeout() -> None:
    (started,) = only(tell(INIT, said(tool_use("t1", "mcp__x__y", timeout=9000))), ToolStarted)
    assert started.timeout_seconds is None


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("plain", "plain"),
        ([text("a"), text("b")], "a\nb"),
        ([{"type": "image", "source": {}}], "[image]"),
        (None, ""),
        ({"odd": 1}, '{"odd":1}'),
    ],
)
def test_the_output_of_a_call_is_shown_as_text(content: Any, shown: str) -> None:
    (finished,) = only(tell(INIT, said(tool_use("t1")), tool_result("t1", content)), ToolFinished)
    assert (finished.output, finished.outcome) == (shown, Outcome.OK)


def test_long_output_keeps_its_tail_and_its_true_length() -> None:
    spec = ParserSpec(bounds=Bounds(tool_chars=100))
    lines = [INIT, said(tool_use("t1")), tool_result("t1", "x" * 1000 + "end")]
    (finished,) = only(tell(*lines, spec=spec), ToolFinished)
    assert len(finished.output) == 100
    assert finished.output.endswith("xend")
    assert finished.output_chars == 1003


def test_a_repeat_of_a_call_or_of_its_end_changes_nothing() -> None:
    once = tell(INIT, said(tool_use("t1")), tool_result("t1", "a"))
    twice = tell(
        INIT,
        said(tool_use("t1")),
        said(tool_use("t1")),
        tool_result("t1", "a"),
        tool_result("t1", "b", is_error=True),
        said(tool_use("t1")),
    )
    assert once == twice


def test_an_end_without_a_start_is_a_call() -> None:
    (finished,) = only(tell(INIT, tool_result("t9", "a")), ToolFinished)
    assert (finished.call_id, finished.name) == ("t9", "tool")


def test_a_denied_call_is_rejected() -> None:
    denied = {"type": "system", "subtype": "permission_denied", "tool_use_id": "t1"}
    lines = [INIT, said(tool_use("t1")), denied, tool_result("t1", "No.", is_error=True)]
    (finished,) = only(tell(*lines), ToolFinished)
    assert (finished.outcome, finished.label) == (Outcome.REJECTED, "permission_denied")


def test_a_call_that_only_the_result_tells_as_denied_is_rejected() -> None:
    denials = [{"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {}}, 7, {}]
    events = tell(INIT, said(tool_use("t1")), {**DONE, "permission_denials": denials})
    (finished,) = only(events, ToolFinished)
    assert finished.outcome is Outcome.REJECTED
    assert isinstance(events[-1], Result)


def test_an_interrupted_call_failed_and_was_not_refused() -> None:
    words = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    lines = [INIT, said(tool_use("t1")), tool_result("t1", words, is_error=True)]
    (finished,) = only(tell(*lines), ToolFinished)
    assert finished.outcome is Outcome.FAILED


def test_tools_that_the_api_runs_itself_are_calls_too() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [text("hit")]}
    events = tell(INIT, said(use, found))
    assert [type(event) for event in events] == [Init, ToolStarted, ToolFinished]
    assert only(events, ToolFinished)[0].output == "hit"


def test_too_many_calls_are_the_tool_limit() -> None:
    spec = ParserSpec(bounds=Bounds(tool_calls=2))
    uses = [tool_use(f"t{number}") for number in range(3)]
    events = tell(INIT, said(*uses), spec=spec)
    assert fault(events) is Code.TOOL_LIMIT
    assert len(only(events, ToolStarted)) == 2
    ends = [tool_result(f"t{number}") for number in range(3)]
    assert fault(tell(INIT, *ends, spec=spec)) is Code.TOOL_LIMIT


@pytest.mark.parametrize("call_id", ["", "x" * 241])
def test_an_unusable_call_id_is_unknown_schema(call_id: str) -> None:
    assert fault(tell(INIT, said(tool_use(call_id)))) is Code.UNKNOWN_SCHEMA


def test_an_input_that_no_program_could_use_stays_text() -> None:
    line = json.dumps(said(tool_use("t1", size="@"))).replace('"@"', "1e999")
    (started,) = only(tell(INIT, line), ToolStarted)
    assert started.input == {"value": '{"size": 1e999}'}


# Questions.

ASK = {
    "type": "control_request",
    "request_id": "q1",
    "request": {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1"},
}
RESPONSE = {"type": "control_response", "response": {"subtype": "success", "request_id": "q1"}}
CANCEL = {"type": "control_cancel_request", "request_id": "q1"}


@pytest.mark.parametrize("answer", [RESPONSE, CANCEL, tool_result("t1", "ran")])
def test_a_question_is_open_until_it_is_answered(answer: dict[str, Any]) -> None:
    asked = tell(INIT, said(tool_use("t1")), ASK)
    assert only(asked, QueryOpened) == [QueryOpened("q1", "can_use_tool")]
    assert only(asked, QueryAnswered) == []
    answered = tell(INIT, said(tool_use("t1")), ASK, answer)
    assert only(answered, QueryAnswered) == [QueryAnswered("q1")]


# News of a release.


@pytest.mark.parametrize(
    "line", [INIT, said(text("Hi")), tool_result("t1"), delta("Hi"), DONE], ids=lambda x: x["type"]
)
def test_a_renamed_type_is_unknown_schema_and_told_without_its_content(
    line: dict[str, Any],
) -> None:
    before = [] if line is INIT else [INIT]
    events = tell(*before, {**line, "type": f"new_{line['type']}"})
    assert fault(events) is Code.UNKNOWN_SCHEMA
    unusable = only(events, Fault)[0].line
    assert unusable.type == f"new_{line['type']}"
    assert unusable.prose is None


def test_a_line_without_a_type_is_unknown_schema() -> None:
    assert fault(tell(INIT, {"subtype": "status"})) is Code.UNKNOWN_SCHEMA


@pytest.mark.parametrize(
    "type", ["rate_limit_event", "tool_progress", "tool_use_summary", "auth_status", "keep_alive"]
)
def test_documented_types_without_a_recording_are_signs_of_life(type: str) -> None:
    assert tell(INIT, {"type": type, "session_id": ID})[1:] == [Notice(type)]


def test_new_system_subtypes_are_counted_once_and_noticed() -> None:
    new = {"type": "system", "subtype": "moon_phase", "session_id": ID}
    events = tell(INIT, new, new, DONE)
    assert only(events, Drift) == [Drift("type", "system.moon_phase")]
    assert only(events, Notice) == [Notice("system/moon_phase")] * 2


def test_new_content_blocks_are_counted_and_noticed() -> None:
    events = tell(INIT, said({"type": "hologram", "data": 1}, text("Hi")), DONE)
    assert only(events, Drift) == [Drift("type", "assistant.hologram")]
    assert only(events, Notice) == [Notice("assistant/hologram")]
    assert segments(events) == ["Hi"]


def test_new_fields_are_counted_and_ignored() -> None:
    events = tell(INIT, {**DONE, "mood": "good"})
    assert only(events, Drift) == [Drift("field", "result.mood")]
    assert events[-1] == Result(False, text="Done.")


def test_a_new_result_subtype_is_counted_and_the_flag_decides() -> None:
    events = tell(INIT, {**DONE, "subtype": "paused"})
    assert only(events, Drift) == [Drift("type", "result.paused")]
    assert events[-1] == Result(False, text="Done.")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text"},
        {"type": "text", "text": 1},
        {"type": "tool_use", "id": "t1"},
        {"type": "tool_use", "id": 1, "name": "Bash"},
        {"text": "Hi"},
        "Hi",
        None,
    ],
)
def test_a_known_block_of_the_wrong_shape_is_unknown_schema(block: Any) -> None:
    assert fault(tell(INIT, said(block))) is Code.UNKNOWN_SCHEMA


# Lines.


def test_prose_is_a_bad_line() -> None:
    assert fault(tell(INIT, "Warning: something")) is Code.BAD_LINE
    assert fault(play(json.dumps(INIT).encode() + b'\n{"type":"\xff"}\n')) is Code.BAD_LINE


def test_a_line_that_was_cut_is_told_in_the_facts() -> None:
    parser = ClaudeParser(ParserSpec())
    parser.feed(json.dumps(INIT).encode() + b'\n{"type":"assi')
    assert parser.end() == []
    assert parser.facts.cut_line_bytes == 13
    assert parser.end() == []


def test_a_nesting_bomb_is_refused() -> None:
    bomb = '{"type":"assistant","x":' + "[" * 100_000 + "]" * 100_000 + "}"
    assert fault(tell(INIT, bomb)) is Code.UNKNOWN_SCHEMA


def test_nothing_follows_a_fault() -> None:
    assert fault(tell(INIT, "prose", said(text("Hi")), DONE, INIT)) is Code.BAD_LINE


# Anything at all.

BUSY = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in [
        INIT,
        delta("Hé"),
        said(text("Hé"), tool_use("t1", command="ls")),
        tool_result("t1", "out"),
        said(text("Sub"), parent_tool_use_id="t1"),
        DONE,
        {"type": "system", "subtype": "task_updated", "session_id": ID},
        INIT,
        delta("More"),
        FAILED,
    ]
)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(BUSY))))
def test_any_split_gives_the_same_events(pieces: list[int]) -> None:
    assert play(BUSY, pieces) == play(BUSY)


@settings(deadline=None)
@given(st.integers(0, len(BUSY) - 1), st.binary(max_size=8), st.integers(0, 40))
def test_any_damage_gives_at_most_one_fault_and_the_same_events_at_any_split(
    at: int, patch: bytes, dropped: int
) -> None:
    data = BUSY[:at] + patch + BUSY[at + dropped :]
    events = play(data)
    fault(events)
    assert play(data, list(range(len(data)))) == events


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_at_most_one_fault_and_no_exception(data: bytes) -> None:
    fault(play(data))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = """
subtype message content session_id event delta request request_id response result is_error errors
usage permission_denials parent_tool_use_id id name input tool_use_id text
"""


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            lambda kind, fields: {**fields, "type": kind},
            st.sampled_from(sorted(ClaudeParser.vocabulary.types)),
            st.dictionaries(st.sampled_from(FIELDS.split()), values, max_size=5),
        ),
        max_size=6,
    )
)
def test_known_types_with_any_fields_give_at_most_one_fault(lines: list[dict[str, Any]]) -> None:
    fault(tell(INIT, *lines))
