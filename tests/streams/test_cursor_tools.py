"""Tool calls of the Cursor stream: identity, kind, arguments, outcome, output."""

import json
from typing import Any

import msgspec
import pytest
from cursor_streams import (
    INIT,
    RESULT,
    call,
    completed,
    drifts,
    encoded,
    fault,
    kinds,
    only,
    play,
    started,
    stream,
)

from agentsdock.model.codes import Code
from agentsdock.streams.neutral import (
    Bounds,
    Outcome,
    ParserSpec,
    ToolFinished,
    ToolStarted,
)


def finish(result: Any, **body: Any) -> ToolFinished:
    (told,) = only(ToolFinished, play(stream(INIT, started(), completed(result, **body))))
    assert isinstance(told, ToolFinished)
    return told


def start(spec: ParserSpec | None = None, kind: str = "readToolCall", **args: Any) -> ToolStarted:
    (told,) = only(ToolStarted, play(stream(INIT, started("c1", kind, **args)), spec))
    assert isinstance(told, ToolStarted)
    return told


# Identity


def test_a_call_is_started_and_finished_under_its_id() -> None:
    events = play(stream(INIT, started("a\nb", command="ls"), completed({"success": {}}, "a\nb")))
    assert events[1:] == [
        ToolStarted("a\nb", "shell", {"command": "ls"}),
        ToolFinished("a\nb", "shell", None, Outcome.OK, "success", "", None, 0),
    ]


def test_a_completion_without_a_start_is_a_call_with_its_input() -> None:
    (told,) = play(stream(INIT, completed({"success": {}}, args={"command": "ls"})))[1:]
    assert told == ToolFinished(
        "c1", "shell", {"command": "ls"}, Outcome.OK, "success", "", None, 0
    )


def test_calls_may_finish_in_another_order() -> None:
    lines = [started("a"), started("b"), completed({"success": {}}, "b"), completed({}, "a")]
    events = play(stream(INIT, *lines))
    assert [event.call_id for event in events[1:]] == ["a", "b", "b", "a"]


def test_a_repeat_changes_nothing() -> None:
    ok, bad = completed({"success": {}}), completed({"failure": {}})
    events = play(stream(INIT, started(), started(), ok, bad, started(), ok))
    assert kinds(events) == ["Init", "ToolStarted", "ToolFinished"]
    assert events[2].outcome is Outcome.OK


@pytest.mark.parametrize("bad", [None, "", "x" * 241, 5, []])
@pytest.mark.parametrize("where", ["beside", "inside"])
def test_a_bad_call_id_falls_back_to_the_nested_one(bad: Any, where: str) -> None:
    body = {"readToolCall": {"args": {"toolCallId": "nested"} if where == "inside" else {}}}
    if where == "beside":
        body["toolCallId"] = "nested"  # type: ignore[assignment]
    told = started(bad) | {"tool_call": body}
    (event,) = only(ToolStarted, play(stream(INIT, told)))
    assert event.call_id == "nested"


@pytest.mark.parametrize("nested", ["", "x" * 241, 5, None])
def test_without_any_usable_call_id_the_schema_is_unknown(nested: Any) -> None:
    events = play(stream(INIT, started(None, toolCallId=nested)))
    assert fault(events).code is Code.UNKNOWN_SCHEMA
    assert "call id" in fault(events).message


def test_a_call_id_may_be_240_characters() -> None:
    assert only(ToolStarted, play(stream(INIT, started("x" * 240))))[0].call_id == "x" * 240


# Kinds


def test_an_unknown_kind_is_shown_under_its_own_name_and_counted() -> None:
    events = play(stream(INIT, started("c1", "paintToolCall"), started("c2", "paintToolCall")))
    assert [event.name for event in only(ToolStarted, events)] == ["paint", "paint"]
    assert drifts(events) == [("tool", "paint")]


def test_a_kind_without_a_name_keeps_its_key_and_a_long_one_is_cut() -> None:
    assert start(kind="ToolCall").name == "ToolCall"
    cut = start(kind="x" * 1000 + "ToolCall").name
    assert len(cut) == 240
    assert cut.endswith("…")


def test_new_facts_beside_a_call_are_counted() -> None:
    lines = call("started", "c1", "lsToolCall", args={})
    lines["tool_call"] |= {"startedAtMs": "1", "mood": {"result": 5, "args": 6}, "odd": [1]}
    events = play(stream(INIT, lines, RESULT))
    assert drifts(events) == [("field", "tool_call.mood"), ("field", "tool_call.odd")]
    assert "Fault" not in kinds(events)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"q":1}', {"q": 1}),
        ({"q": 1}, {"q": 1}),
        ("not json", {"value": "not json"}),
        ("[1]", {"value": "[1]"}),
        ("", {"value": ""}),
    ],
)
def test_the_function_form_has_its_name_and_arguments_inside(arguments: Any, expected: Any) -> None:
    function = {"name": "lookup", "arguments": arguments}
    events = play(stream(INIT, call("started", "c1", "function", **function)))
    assert events[1:] == [ToolStarted("c1", "lookup", expected)]


def test_a_function_without_a_name_is_just_a_function() -> None:
    assert start(kind="function").name == "function"


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(30_000, 30.0), (1500.0, 1.5), (0, None), (-5, None), ("30000", None), (True, None)],
)
def test_a_shell_call_declares_its_timeout_in_milliseconds(timeout: Any, seconds: Any) -> None:
    assert start(kind="shellToolCall", timeout=timeout).timeout_seconds == seconds
    assert start(kind="mcpToolCall", timeout=timeout).timeout_seconds is None


# Input


def test_an_input_that_fits_is_kept_whole() -> None:
    args = {"path": "a", "edits": [{"old": "x", "new": None}], "n": 1.5, "deep": [[[{"a": True}]]]}
    assert start(**args).input == args


@pytest.mark.parametrize("args", ["text", 5, [1, 2], None])
def test_an_input_that_is_no_object_is_wrapped(args: Any) -> None:
    events = play(stream(INIT, call("started", "c1", "readToolCall", args=args)))
    assert events[1].input == ({} if args is None else {"value": args})


def test_a_call_without_arguments_has_an_empty_input() -> None:
    assert play(stream(INIT, call("started", "c1", "readToolCall")))[1].input == {}


def test_a_large_input_is_bounded_and_says_so() -> None:
    bounded = start(path="a.txt", fileText="x" * 50_000, after="y" * 100).input
    assert bounded["path"] == "a.txt"
    assert bounded["fileText"].startswith("x" * 1000)
    assert bounded["fileText"].endswith("[trimmed: the start of 50000 characters]")
    assert len(json.dumps(bounded)) < 12_500


def test_many_texts_share_one_budget() -> None:
    bounded = start(**{f"k{number}": "v" * 5_000 for number in range(10)}).input
    assert len(json.dumps(bounded)) < 13_000
    assert bounded["k0"] == "v" * 5_000
    assert bounded["[trimmed]"] == "7 more keys"


def test_long_lists_and_objects_are_cut_and_say_so() -> None:
    wide = {f"k{number}": "v" * 100 for number in range(150)}
    bounded = start(ParserSpec(bounds=Bounds(tool_chars=14_000)), wide=wide).input["wide"]
    assert list(bounded)[:100] == list(wide)[:100]
    assert bounded["[trimmed]"] == "50 more keys"
    assert len(bounded) == 101
    listed = start(items=["v" * 100] * 150).input["items"]
    assert len(listed) == 101
    assert listed[100] == "[trimmed: 50 more items]"


def test_many_long_keys_do_not_escape_the_budget() -> None:
    bounded = start(**{str(number) + "k" * 3000: 1 for number in range(90)}).input
    assert len(json.dumps(bounded)) < 15_000
    assert max(map(len, bounded)) == 240
    assert bounded["[trimmed]"] == f"{90 - len(bounded) + 1} more keys"


def test_keys_that_are_the_same_once_cut_are_told_as_missing() -> None:
    bounded = start(**{"k" * 13_000 + str(number): number for number in range(3)}).input
    assert list(bounded.values()) == [0, "2 more keys"]


def test_a_deeply_nested_input_is_cut_and_can_be_encoded() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"a": [deep]}
    told = msgspec.json.encode(start(deep=deep).input)
    assert b"[trimmed: nested too deeply]" in told


def test_numbers_that_no_program_can_hold_leave_the_input_as_text() -> None:
    raw = encoded(started(n=1)).replace(b'"n":1', b'"n":' + b"9" * 6000)
    (event,) = only(ToolStarted, play(stream(INIT, raw)))
    assert event.input["value"].startswith('{"n":999')
    assert len(event.input["value"]) <= 12_000


def test_a_plan_may_be_as_long_as_any_text() -> None:
    told = start(kind="createPlanToolCall", plan="p" * 40_000, name="n", todos=["t" * 20_000]).input
    assert told["plan"] == "p" * 40_000
    assert told["name"] == "n"
    assert len(told["todos"][0]) < 12_000
    longer = start(kind="createPlanToolCall", plan="p" * 200_000).input["plan"]
    assert len(longer) == 131_072
    assert longer.endswith("[trimmed: the start of 200000 characters]")


# Outcomes

OK = ["success", "complete", "registered", "startSuccess", "saveSuccess", "discardSuccess"]
FAILED = ["failure", "timeout", "spawnError", "writePermissionDenied", "fileNotFound", "noSpace"]


@pytest.mark.parametrize("label", OK)
def test_successes_are_ok_unless_their_exit_code_or_flag_says_otherwise(label: str) -> None:
    told = finish({label: {}})
    assert (told.outcome, told.label, told.exit_code) == (Outcome.OK, label, None)
    assert finish({label: {"exitCode": 0}}).outcome is Outcome.OK
    failed = finish({label: {"exitCode": 2}})
    assert (failed.outcome, failed.exit_code) == (Outcome.FAILED, 2)
    assert finish({label: {"exit_code": -9}}).exit_code == -9
    assert finish({label: {"isError": True}}).outcome is Outcome.FAILED
    assert finish({label: {"isError": False}}).outcome is Outcome.OK


@pytest.mark.parametrize("label", ["rejected", "permissionDenied"])
def test_refusals_are_rejected(label: str) -> None:
    told = finish({label: {"reason": "no"}})
    assert (told.outcome, told.label, told.output) == (Outcome.REJECTED, label, "no")


@pytest.mark.parametrize("label", FAILED)
def test_other_known_outcomes_are_failed(label: str) -> None:
    events = play(stream(INIT, started(), completed({label: {}})))
    assert only(ToolFinished, events)[0].outcome is Outcome.FAILED
    assert drifts(events) == []


def test_an_unknown_outcome_is_failed_shown_under_its_name_and_counted() -> None:
    events = play(stream(INIT, started(), completed({"evaporated": {"where": "sky"}})))
    (told,) = only(ToolFinished, events)
    assert (told.outcome, told.label) == (Outcome.FAILED, "evaporated")
    assert told.output == '{"where":"sky"}'
    assert drifts(events) == [("outcome", "evaporated")]


@pytest.mark.parametrize("result", [{}, {"isBackground": False}, "odd", None, [1]])
def test_no_outcome_at_all_is_failed(result: Any) -> None:
    told = finish(result)
    assert (told.outcome, told.label, told.output) == (Outcome.FAILED, None, "")


@pytest.mark.parametrize("beside", ["isBackground", "planUri", "somethingNew"])
def test_facts_beside_a_known_outcome_are_no_outcome(beside: str) -> None:
    assert finish({beside: True, "success": {}}).label == "success"


@pytest.mark.parametrize(
    ("first", "second", "worse"),
    [
        ("success", "failure", "failure"),
        ("rejected", "success", "rejected"),
        ("rejected", "error", "error"),
        ("approved", "success", "success"),
        ("failure", "needsConfirmation", "needsConfirmation"),
    ],
)
def test_of_two_known_outcomes_the_worse_counts(first: str, second: str, worse: str) -> None:
    assert finish({first: {}, second: {}}).label == worse
    assert finish({second: {}, first: {}}).label == worse


def test_an_outcome_of_null_is_none() -> None:
    assert finish({"error": None, "success": {}}).label == "success"


@pytest.mark.parametrize("label", ["approved", "async", "stillRunning"])
def test_a_call_that_goes_on_is_finished_by_a_later_completion(label: str) -> None:
    going = completed({label: {}})
    events = play(stream(INIT, started(), going, going, completed({"success": {}})))
    assert kinds(events) == ["Init", "ToolStarted", "ToolFinished"]
    assert events[2].label == "success"


def test_a_call_that_goes_on_without_a_start_is_an_open_call() -> None:
    events = play(stream(INIT, completed({"async": {}}, args={"command": "ls"})))
    assert events[1:] == [ToolStarted("c1", "shell", {"command": "ls"})]


def test_a_confirmation_that_nobody_can_give_is_an_approval_request() -> None:
    events = play(stream(INIT, started(), completed({"needsConfirmation": {}}), RESULT))
    assert kinds(events) == ["Init", "ToolStarted", "ToolFinished", "Fault"]
    assert (events[2].outcome, events[2].label) == (Outcome.FAILED, "needsConfirmation")
    assert fault(events).code is Code.APPROVAL_REQUIRED
    assert "shell" in fault(events).message


@pytest.mark.parametrize("code", ["1", 1.0, True, None, 2**40])
def test_an_odd_exit_code_is_no_exit_code(code: Any) -> None:
    told = finish({"success": {"exitCode": code}})
    assert (told.outcome, told.exit_code) == (Outcome.OK, None)


# Output


@pytest.mark.parametrize(
    ("payload", "output"),
    [
        ({"stdout": "out\n", "stderr": "err\n", "interleavedOutput": "both\n"}, "both\n"),
        ({"stdout": "out\n", "stderr": "err\n", "interleavedOutput": ""}, "out\nerr"),
        ({"stdout": "", "stderr": "", "interleavedOutput": ""}, ""),
        ({"content": "the file", "path": "a"}, "the file"),
        ({"content": [{"text": {"text": "one"}}, {"text": "two"}, "three", 4]}, "one\ntwo\nthree"),
        ({"url": "x", "markdown": "# Page"}, "# Page"),
        ({"diffString": "-a\n+b", "afterFullFileContent": "b", "message": "Wrote"}, "-a\n+b"),
        ({"errorMessage": "File not found"}, "File not found"),
        ({"path": "a", "error": "read-only"}, "read-only"),
        ({"files": ["a", "b"], "totalFiles": 2}, '{"files":["a","b"],"totalFiles":2}'),
        ({}, ""),
        ("plain", "plain"),
        (None, ""),
        ([], ""),
    ],
)
def test_the_output_is_what_a_person_wants_to_see(payload: Any, output: str) -> None:
    assert finish({"success": payload}).output == output
    assert finish({"success": payload}).output_chars == len(output)


def test_an_output_keeps_its_end_behind_a_mark() -> None:
    told = finish({"success": {"stdout": "a" * 20_000 + "the end"}})
    assert told.output_chars == 20_007
    assert len(told.output) == 12_000
    assert told.output.startswith("[trimmed: the end of 20007 characters]\na")
    assert told.output.endswith("the end")


def test_an_output_at_its_bound_is_whole() -> None:
    assert finish({"success": {"stdout": "a" * 12_000}}).output == "a" * 12_000
