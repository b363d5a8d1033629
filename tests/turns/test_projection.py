"""What the timeline shows of a stream, and what it never shows."""

import json

from scripted import INIT, call, called, play

from agentsdock.model.codes import Code
from agentsdock.streams.neutral import (
    Bounds,
    Fault,
    Outcome,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
    Unusable,
)


def drafts_of(*events, **options):
    return play(INIT, *events, **options)[1][1:]


def test_a_text_is_one_event_as_it_came():
    (draft,) = drafts_of(Text("a\n\n\nb ", 6))
    assert draft.type == "assistant_text"
    assert draft.payload["text"] == "a\n\n\nb "
    assert "text_truncated" not in draft.payload


def test_a_text_that_the_parser_cut_says_how_long_it_was():
    (draft,) = drafts_of(Text("short", 5000))
    assert (draft.payload["text_chars"], draft.payload["text_truncated"]) == (5000, True)


def test_no_text_is_longer_than_its_bound_whatever_the_parser_lets_through():
    bounds = Bounds(text_chars=500, thought_chars=400, tool_chars=300)
    text, thought, _, finished = drafts_of(
        Text("x" * 900, 900),
        Thought("y" * 900, 900),
        call(),
        called(output="z" * 890 + "the end"),
        bounds=bounds,
    )
    assert len(text.payload["text"]) == 500
    assert len(thought.payload["text"]) == 400
    assert len(finished.payload["output"]) == 300
    assert finished.payload["output"].endswith("the end")
    assert finished.payload["output_chars"] == 897
    for draft in (text, thought, finished):
        assert "trimmed" in json.dumps(draft.payload)


def test_a_thought_is_commentary():
    (draft,) = drafts_of(Thought("hm", 2))
    assert (draft.type, draft.payload["phase"]) == ("reasoning_summary", "commentary")


def test_a_call_keeps_its_tool_from_start_to_end():
    started, finished = drafts_of(call("c\n1"), called("c\n1"))
    tool = {"id": "c\n1", "name": "shell", "input": {"command": "ls"}}
    assert started.payload["tool"] == tool
    assert finished.payload["tool"] == tool
    assert finished.payload["tool_id"] == "c\n1"
    assert (finished.payload["output"], finished.payload["exit_code"]) == ("done", 0)
    assert (finished.payload["outcome"], finished.payload["is_error"]) == ("ok", False)


def test_a_completion_without_a_start_makes_its_own_tool():
    (finished,) = drafts_of(
        ToolFinished("x", "fetch", {"url": "u"}, Outcome.REJECTED, "rejected", "no", 1)
    )
    assert finished.payload["tool"] == {"id": "x", "name": "fetch", "input": {"url": "u"}}
    assert (finished.payload["outcome"], finished.payload["is_error"]) == ("rejected", True)
    assert finished.payload["label"] == "rejected"


def test_an_input_that_is_no_object_is_wrapped_and_a_name_is_cut():
    (started,) = drafts_of(ToolStarted("x", "n" * 1000, ["a"]))
    assert started.payload["tool"]["input"] == {"value": ["a"]}
    assert len(started.payload["tool"]["name"]) == 240


class TestUnusableLines:
    def shown(self, line, **options):
        draft = drafts_of(Fault(Code.BAD_LINE, "odd", line), **options)[0]
        assert draft.type == "raw_event"
        return json.loads(draft.payload["raw"])

    def test_type_subtype_and_size_are_told(self):
        told = self.shown(Unusable(99, "context", "compacted"))
        assert told == {"size": 99, "type": "context", "subtype": "compacted"}

    def test_prose_is_readable_in_any_script(self):
        draft = drafts_of(Fault(Code.BAD_LINE, "odd", Unusable(9, prose="внимание")))[0]
        assert "внимание" in draft.payload["raw"]

    def test_prose_is_told_without_control_sequences_and_bounded(self):
        told = self.shown(Unusable(900, prose="\x1b[31mnpm warn\x1b[0m " + "x" * 800))
        assert told["prose"].startswith("npm warn xx")
        assert len(told["prose"]) == 200

    def test_what_looks_like_json_is_never_shown(self):
        assert self.shown(Unusable(50, prose='  {"key": "sentinel"')) == {"size": 50}

    def test_secrets_are_scrubbed_from_prose(self):
        told = self.shown(Unusable(50, prose="key sk-0123456789"), scrub=("sk-0123456789",))
        assert told["prose"] == "key [redacted]"

    def test_a_fault_without_a_line_shows_none(self):
        assert drafts_of(Fault(Code.OUTPUT_LIMIT, "too much")) == []
