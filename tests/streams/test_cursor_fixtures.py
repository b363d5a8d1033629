"""Every authored Cursor stream, whole and in pieces, against its row of the table."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cursor_streams import FIXTURES, PUBLIC, fault, only, pieces_of, play, play_pieces

from agentsdock.model.codes import Code
from agentsdock.streams.cursor import CursorParser
from agentsdock.streams.neutral import (
    Fault,
    Init,
    ParserSpec,
    QueryAnswered,
    QueryOpened,
    Result,
    StreamEvent,
    Text,
    ToolFinished,
    ToolStarted,
)

ROWS: dict[str, dict[str, Any]] = {
    row["file"]: row
    for row in json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))["fixtures"]
}
STREAM_CODES = {
    "missing-init": Code.MISSING_INIT,
    "unknown-schema": Code.UNKNOWN_SCHEMA,
    "session-mismatch": Code.SESSION_MISMATCH,
    "bad-line": Code.BAD_LINE,
}
"""Codes that a stream alone decides; the others need the exit or a clock."""

every_fixture = pytest.mark.parametrize("name", ROWS)


def data_of(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def spec_of(name: str) -> ParserSpec:
    hint = ROWS[name]["argv_hint"].split()
    return ParserSpec(resume_id=hint[hint.index("--resume") + 1] if "--resume" in hint else None)


def outcomes(events: list[StreamEvent]) -> dict[str, int]:
    finished = only(ToolFinished, events)
    done = {event.call_id for event in finished}
    counts = Counter(event.outcome.value for event in finished)
    counts["unfinished"] += sum(event.call_id not in done for event in only(ToolStarted, events))
    return {outcome: count for outcome, count in counts.items() if count}


def test_every_stream_has_a_row() -> None:
    assert len(ROWS) == 42
    assert {path.name for path in FIXTURES.glob("*.jsonl")} == set(ROWS)


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name]["assistant_segments"]])
def test_assistant_segments_are_shown_once_and_in_order(name: str) -> None:
    events = play(data_of(name), spec_of(name))
    assert [event.text for event in only(Text, events)] == ROWS[name]["assistant_segments"]


@every_fixture
def test_tool_outcomes_are_those_of_the_table(name: str) -> None:
    events = play(data_of(name), spec_of(name))
    assert outcomes(events) == (ROWS[name]["tool_outcomes"] or {})
    assert (
        len({event.call_id for event in only((ToolStarted, ToolFinished), events)})
        == (ROWS[name]["tool_calls"])
    )


@every_fixture
def test_the_session_is_that_of_a_valid_init(name: str) -> None:
    inits = only(Init, play(data_of(name), spec_of(name)))
    expected = ROWS[name]["session_id"]
    assert [init.session_id for init in inits] == ([expected] if expected else [])


@every_fixture
def test_the_stream_says_what_became_of_the_turn(name: str) -> None:
    row, events = ROWS[name], play(data_of(name), spec_of(name))
    code, results = row["error_code"], only(Result, events)
    if code in STREAM_CODES:
        assert fault(events).code is STREAM_CODES[code]
        assert results == []
    elif name == "42-untrusted-but-exit-0.jsonl":
        assert fault(events).code is Code.APPROVAL_REQUIRED
    else:
        assert only(Fault, events) == []
        assert [result.is_error for result in results] == {
            None: [False],
            "logical-error": [True],
        }.get(code, [])
        assert [result.text for result in results] == [row["final_text"]] * len(results)


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name]["bytes"] < 250_000])
def test_byte_by_byte_the_events_are_the_same(name: str) -> None:
    data = data_of(name)
    cut = [data[at : at + 1] for at in range(len(data))]
    assert play_pieces(cut, spec_of(name)) == play(data, spec_of(name))


@every_fixture
@pytest.mark.parametrize("seed", range(3))
def test_random_pieces_give_the_same_events_and_facts(name: str, seed: int) -> None:
    data, spec = data_of(name), spec_of(name)
    whole, cut = CursorParser(spec), CursorParser(spec)
    events = whole.feed(data) + whole.end()
    most = 400 if len(data) < 250_000 else 40_000
    pieces = pieces_of(data, seed, most)
    assert [event for piece in pieces for event in cut.feed(piece)] + cut.end() == events
    assert cut.facts == whole.facts
    assert whole.facts.bytes == len(data)


def test_an_open_query_stays_open_and_the_answered_ones_are_closed() -> None:
    asked = play(data_of("23-approval-request-unanswered.jsonl"))
    assert [(event.query_id, event.kind) for event in only(QueryOpened, asked)] == [
        ("7", "shellRequestQuery")
    ]
    assert only(QueryAnswered, asked) == []
    answered = play(data_of("06-queries-rejected-by-the-cli.jsonl"))
    assert [event.query_id for event in only(QueryOpened, answered)] == ["0", "1", "2"]
    assert [event.query_id for event in only(QueryAnswered, answered)] == ["0", "1", "2"]


def test_a_plan_is_in_the_input_of_its_call() -> None:
    started = only(ToolStarted, play(data_of("05-plan-mode.jsonl")))
    assert [event.name for event in started] == ["read", "createPlan"]
    assert started[1].input["plan"].startswith("# Frost warnings\n\n1. Add `frost.py`")


def test_a_cut_last_line_is_a_fact_and_no_fault() -> None:
    parser = CursorParser()
    events = parser.feed(data_of("26-truncated-last-line.jsonl")) + parser.end()
    assert only(Fault, events) == []
    last = data_of("26-truncated-last-line.jsonl").rpartition(b"\n")[2]
    assert parser.facts.cut_line_bytes == len(last) > 0


def test_terminal_noise_is_counted() -> None:
    parser = CursorParser()
    parser.feed(data_of("24-ansi-noise.jsonl"))
    assert parser.facts.control_sequences == 9


def test_an_output_over_its_bound_keeps_its_end_and_says_so() -> None:
    (finished,) = only(ToolFinished, play(data_of("18-huge-tool-output.jsonl")))
    assert len(finished.output) == 12_000
    assert finished.output.startswith("[trimmed: the end of 478350 characters]\n")
    assert finished.output.endswith("\n015999 leaf counted on row 91\n")
    assert finished.output_chars == 478_350


@pytest.mark.parametrize("name", ["direct-sleep", "parallel-sleep", "subagent-sleep"])
def test_streams_that_others_recorded_are_understood_completely(name: str) -> None:
    path: Path = PUBLIC / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("the public captures are not here")
    data = path.read_bytes()
    events = play(data)
    assert play_pieces(pieces_of(data, 1)) == events
    assert isinstance(events[0], Init)
    (result,) = only(Result, events)
    assert result == events[-1]
    assert result.text == "".join(event.text for event in only(Text, events))
    assert set(outcomes(events)) == {"ok"}
