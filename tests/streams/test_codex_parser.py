"""What Codex prints in ``exec --json``, as neutral events."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdock.model.codes import Code
from agentsdock.streams.codex import CodexParser
from agentsdock.streams.neutral import (
    Bounds,
    Drift,
    Fault,
    Init,
    Notice,
    Outcome,
    ParserSpec,
    Result,
    StreamEvent,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
    Usage,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "codex"
PROSE = "plain-not-json.jsonl"
ROWS = [
    row
    for row in json.loads((FIXTURES / "index.json").read_bytes())
    if "app-server" not in row["argv"]
]
BYTEWISE_LIMIT = 20_000

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])

ID = "01a22f93-49b4-7052-89a7-26957cf80108"
THREAD = {"type": "thread.started", "thread_id": ID}
TURN = {"type": "turn.started"}
USAGE = {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2}
DONE = {"type": "turn.completed", "usage": USAGE}
FAILED = {"type": "turn.failed", "error": {"message": "No."}}


def item(stage: str, type: str, id: str = "item_1", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{stage}", "item": {"id": id, "type": type, **fields}}


def said(words: str) -> dict[str, Any]:
    return item("completed", "agent_message", text=words)


def command(stage: str, status: str, code: int | None, id: str = "item_1") -> dict[str, Any]:
    return item(
        stage,
        "command_execution",
        id,
        command="ls",
        aggregated_output="out",
        exit_code=code,
        status=status,
    )


def play(
    data: bytes, pieces: list[int] | None = None, spec: ParserSpec | None = None
) -> list[StreamEvent]:
    """The events of ``data``, fed in pieces that end at the given offsets."""
    parser = CodexParser(spec or ParserSpec())
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


def recorded(row: dict[str, Any]) -> tuple[bytes, ParserSpec]:
    return (FIXTURES / row["file"]).read_bytes(), ParserSpec(resume_id=row["resumed"])


# Recorded streams.


@each_row
def test_a_recorded_stream_means_what_its_index_says(row: dict[str, Any]) -> None:
    data, spec = recorded(row)
    events = play(data, spec=spec)
    results = only(events, Result)
    assert len(results) == len(row["results"])
    assert fault(events) is (Code.BAD_LINE if row["file"] == PROSE else None)
    succeeded = row["exit_code"] == 0 and any(not result.is_error for result in results)
    assert succeeded == (row["verdict"] == "ok")
    if succeeded:
        assert results[0].text == (row["final_text"] or "")
    elif results:
        assert results[0].text == ""
        assert results[0].message


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


def test_reconnects_of_a_turn_that_recovers_decide_nothing() -> None:
    events = play((FIXTURES / "err-drop-once.jsonl").read_bytes())
    assert Notice("error") in events
    assert events[-1].text == "Partial answer, then the line is cut"


def test_a_model_warning_is_no_failure() -> None:
    events = play((FIXTURES / "plain-unknown-model.jsonl").read_bytes())
    assert Notice("item/error") in events
    assert not events[-1].is_error


def test_a_long_output_keeps_its_tail_and_tells_its_length() -> None:
    (finished,) = only(play((FIXTURES / "big-output.jsonl").read_bytes()), ToolFinished)
    assert len(finished.output) == Bounds().tool_chars
    assert finished.output_chars > 100_000
    assert finished.output.rstrip().endswith("20000")


def test_line_separators_inside_of_text_end_no_line() -> None:
    (said,) = only(play((FIXTURES / "unicode.jsonl").read_bytes()), Text)
    assert "\u2028" in said.text


def test_a_search_that_names_its_id_twice_is_known_by_the_first() -> None:
    events = play((FIXTURES / "web-search.jsonl").read_bytes())
    assert [event.call_id for event in only(events, ToolStarted)] == ["item_0"]
    assert [event.call_id for event in only(events, ToolFinished)] == ["item_0"]


def test_a_command_that_outlives_the_turn_has_no_end() -> None:
    events = play((FIXTURES / "background-shell.jsonl").read_bytes())
    assert len(only(events, ToolStarted)) == 1
    assert only(events, ToolFinished) == []


# Identity and order.


def test_the_thread_is_the_session() -> None:
    assert tell(THREAD) == [Init(ID)]
    assert tell(THREAD, THREAD) == [Init(ID)]


@pytest.mark.parametrize("bad", ["", "a b", "x" * 300, 7, None])
def test_an_unusable_thread_id_is_unknown_schema(bad: Any) -> None:
    assert fault(tell({**THREAD, "thread_id": bad})) is Code.UNKNOWN_SCHEMA


@pytest.mark.parametrize("line", [TURN, said("Hi"), DONE, FAILED], ids=lambda x: x["type"])
def test_activity_before_the_thread_is_missing_init(line: dict[str, Any]) -> None:
    assert fault(tell(line)) is Code.MISSING_INIT


def test_an_error_before_the_thread_decides_nothing() -> None:
    assert fault(tell({"type": "error", "message": "Odd."}, THREAD, DONE)) is None


def test_a_resume_must_be_answered_by_the_same_thread() -> None:
    assert fault(tell(THREAD, spec=ParserSpec(resume_id=ID))) is None
    assert fault(tell(THREAD, spec=ParserSpec(resume_id="other"))) is Code.SESSION_MISMATCH


def test_a_second_thread_is_a_mismatch() -> None:
    assert fault(tell(THREAD, {**THREAD, "thread_id": "other"})) is Code.SESSION_MISMATCH


# Results.


def test_the_last_message_is_the_text() -> None:
    events = tell(THREAD, TURN, said("First."), said("Last."), DONE)
    assert [event.text for event in only(events, Text)] == ["First.", "Last."]
    assert events[-1].text == "Last."


def test_a_turn_without_a_message_has_an_empty_text() -> None:
    (result,) = only(tell(THREAD, DONE), Result)
    assert (result.is_error, result.text) == (False, "")


def test_a_failed_turn_says_why() -> None:
    assert tell(THREAD, said("Half."), FAILED)[-1] == Result(True, message="No.")
    error = {"type": "error", "message": "Reconnecting... 5/5"}
    silent = {"type": "turn.failed", "error": {"message": ""}}
    assert tell(THREAD, error, silent)[-1] == Result(True, message="Reconnecting... 5/5")


def test_tokens_come_with_the_result_and_cached_ones_count_once() -> None:
    (result,) = only(tell(THREAD, DONE), Result)
    assert result.usage == Usage(5, 2, 4, None)


@pytest.mark.parametrize(
    "odd", ['"many"', "null", "[1]", '{"input_tokens": 1e400}', '{"input_tokens": -1}']
)
def test_odd_accounting_costs_only_the_accounting(odd: str) -> None:
    (result,) = only(tell(THREAD, f'{{"type":"turn.completed","usage":{odd}}}'), Result)
    assert (result.is_error, result.usage) == (False, None)


def test_nothing_counts_after_the_turn_is_over() -> None:
    over = tell(THREAD, DONE)
    assert tell(THREAD, DONE, "prose", FAILED, said("Late."), '{"type":"later"}') == over


# Items.


def test_reasoning_is_a_thought() -> None:
    events = tell(THREAD, item("completed", "reasoning", text="Hm."))
    assert only(events, Thought) == [Thought("Hm.", 3)]


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        ("completed", 0, Outcome.OK),
        ("completed", None, Outcome.OK),
        ("completed", 3, Outcome.FAILED),
        ("failed", 3, Outcome.FAILED),
        ("failed", None, Outcome.FAILED),
        ("declined", None, Outcome.REJECTED),
    ],
)
def test_the_status_and_the_exit_code_tell_how_a_command_ended(
    status: str, code: int | None, outcome: Outcome
) -> None:
    events = tell(
        THREAD, command("started", "in_progress", None), command("completed", status, code)
    )
    assert only(events, ToolStarted) == [
        ToolStarted("item_1", "command_execution", {"command": "ls"})
    ]
    (finished,) = only(events, ToolFinished)
    assert (finished.outcome, finished.exit_code, finished.label) == (outcome, code, status)
    assert finished.output == "out"


def test_a_new_status_is_counted_and_shown_and_no_success() -> None:
    events = tell(THREAD, command("completed", "levitated", None))
    assert only(events, Drift) == [Drift("outcome", "levitated")]
    (finished,) = only(events, ToolFinished)
    assert (finished.outcome, finished.label) == (Outcome.FAILED, "levitated")


def test_a_completion_that_is_still_in_progress_leaves_the_call_open() -> None:
    events = tell(THREAD, command("completed", "in_progress", None))
    assert [type(event) for event in events] == [Init, ToolStarted]


def test_a_repeat_of_a_call_or_of_its_end_changes_nothing() -> None:
    started, ended = command("started", "in_progress", None), command("completed", "completed", 0)
    late = command("completed", "failed", 1)
    updated = command("updated", "in_progress", None)
    assert tell(THREAD, started, ended) == tell(
        THREAD, started, updated, started, ended, late, started
    )


def test_an_end_without_a_start_is_a_call() -> None:
    events = tell(
        THREAD, item("completed", "file_change", changes=[{"path": "/w/a", "kind": "add"}])
    )
    (finished,) = only(events, ToolFinished)
    assert finished.input == {"changes": [{"path": "/w/a", "kind": "add"}]}
    assert (finished.name, finished.outcome) == ("file_change", Outcome.OK)


def test_a_call_of_a_server_is_named_by_server_and_tool() -> None:
    asked = {"server": "docs", "tool": "find", "arguments": {"q": "x"}}
    answer = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    events = tell(
        THREAD,
        item("started", "mcp_tool_call", status="in_progress", **asked),
        item("completed", "mcp_tool_call", status="completed", result=answer, error=None, **asked),
    )
    assert only(events, ToolStarted) == [ToolStarted("item_1", "docs.find", {"q": "x"})]
    (finished,) = only(events, ToolFinished)
    assert (finished.name, finished.output) == ("docs.find", "a\nb")
    assert finished.outcome is Outcome.OK


def test_an_answer_without_text_is_shown_as_data() -> None:
    answer = {"content": [{"type": "image"}], "structured_content": None}
    (finished,) = only(
        tell(THREAD, item("completed", "mcp_tool_call", result=answer)), ToolFinished
    )
    assert json.loads(finished.output) == answer


def test_an_exit_code_that_no_system_has_is_left_out() -> None:
    (finished,) = only(tell(THREAD, command("completed", "failed", 1 << 40)), ToolFinished)
    assert finished.exit_code is None


def test_an_error_of_a_server_fails_its_call() -> None:
    broken = item("completed", "mcp_tool_call", error={"message": "gone"}, status="completed")
    (finished,) = only(tell(THREAD, broken), ToolFinished)
    assert (finished.outcome, finished.output) == (Outcome.FAILED, "gone")


def test_the_last_state_of_a_plan_is_shown() -> None:
    first = [{"text": "look", "completed": False}]
    last = [{"text": "look", "completed": True}, {"text": "fix", "completed": False}]
    events = tell(
        THREAD,
        item("started", "todo_list", items=first),
        item("updated", "todo_list", items=last),
        item("completed", "todo_list", items=last),
    )
    (finished,) = only(events, ToolFinished)
    assert finished.output == "[x] look\n[ ] fix"


def test_new_items_are_counted_and_shown_as_calls() -> None:
    events = tell(
        THREAD,
        item("started", "hologram", size=1),
        item("completed", "hologram", size=1, status="completed", light="blue"),
    )
    assert only(events, Drift) == [Drift("type", "item.hologram")]
    assert only(events, ToolStarted) == [ToolStarted("item_1", "hologram", {"size": 1})]
    (finished,) = only(events, ToolFinished)
    assert "blue" in finished.output


def test_new_fields_are_counted_and_ignored() -> None:
    changed = item("completed", "file_change", changes=[], mood="good")
    events = tell(THREAD, changed, {**DONE, "weather": "fair"})
    assert only(events, Drift) == [
        Drift("field", "file_change.mood"),
        Drift("field", "turn.completed.weather"),
    ]


def test_too_many_calls_are_the_tool_limit() -> None:
    spec = ParserSpec(bounds=Bounds(tool_calls=2))
    calls = [command("completed", "completed", 0, id=f"item_{number}") for number in range(3)]
    events = tell(THREAD, *calls, spec=spec)
    assert fault(events) is Code.TOOL_LIMIT
    assert len(only(events, ToolFinished)) == 2


def test_long_text_is_cut_and_its_true_length_told() -> None:
    spec = ParserSpec(bounds=Bounds(text_chars=100, accumulated_text_chars=200, thought_chars=50))
    long = "x" * 1000
    events = tell(THREAD, item("completed", "reasoning", text=long), said(long), DONE, spec=spec)
    (shown,), (thought,) = only(events, Text), only(events, Thought)
    assert (len(shown.text), shown.chars) == (100, 1000)
    assert (len(thought.text), thought.chars) == (50, 1000)
    assert len(events[-1].text) == 200


# News of a release, and lines that are none.


@pytest.mark.parametrize(
    "line", [THREAD, TURN, said("Hi"), DONE, FAILED, {"type": "error", "message": ""}]
)
def test_a_renamed_type_is_unknown_schema(line: dict[str, Any]) -> None:
    before = [] if line is THREAD else [THREAD]
    assert fault(tell(*before, {**line, "type": f"new.{line['type']}"})) is Code.UNKNOWN_SCHEMA


@pytest.mark.parametrize(
    "line",
    [
        {"no": "type"},
        {"type": "error"},
        {"type": "turn.failed"},
        {"type": "turn.failed", "error": "No."},
        {"type": "item.completed"},
        {"type": "item.completed", "item": []},
        {"type": "item.completed", "item": {"type": "reasoning", "text": "no id"}},
        {"type": "item.completed", "item": {"id": "", "type": "reasoning", "text": ""}},
        {"type": "item.completed", "item": {"id": "item_1"}},
        {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message"}},
        {"type": "item.completed", "item": {"id": "x" * 241, "type": "todo_list"}},
    ],
)
def test_a_known_line_of_the_wrong_shape_is_unknown_schema(line: dict[str, Any]) -> None:
    assert fault(tell(THREAD, line)) is Code.UNKNOWN_SCHEMA


def test_prose_is_a_bad_line_and_nothing_follows_it() -> None:
    assert fault(tell(THREAD, "Warning: something", said("Hi"), DONE)) is Code.BAD_LINE


def test_a_line_that_was_cut_is_told_in_the_facts() -> None:
    parser = CodexParser(ParserSpec())
    parser.feed(json.dumps(THREAD).encode() + b'\n{"type":"turn')
    assert parser.end() == []
    assert parser.facts.cut_line_bytes == 13


def test_a_last_line_without_an_end_counts_when_it_is_whole() -> None:
    assert play(json.dumps(THREAD).encode()) == [Init(ID)]


# Anything at all.

BUSY = b"".join(
    json.dumps(line, ensure_ascii=False).encode() + b"\n"
    for line in [
        THREAD,
        TURN,
        item("completed", "reasoning", text="Hm\u2028é"),
        command("started", "in_progress", None),
        {"type": "error", "message": "Reconnecting... 1/5"},
        command("completed", "completed", 0),
        said("Dóne."),
        DONE,
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
text message status exit_code command aggregated_output changes server tool arguments result error
query action items
"""
TYPES = "agent_message reasoning error command_execution mcp_tool_call todo_list web_search other"


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            lambda stage, type, fields: item(stage, type, **fields),
            st.sampled_from(["started", "updated", "completed"]),
            st.sampled_from(TYPES.split()),
            st.dictionaries(st.sampled_from(FIELDS.split()), values, max_size=5),
        ),
        max_size=6,
    )
)
def test_items_with_any_fields_give_at_most_one_fault(lines: list[dict[str, Any]]) -> None:
    fault(tell(THREAD, *lines))
