"""Events as lines for a person: what is said of each, and what must never get through."""

import pytest

from agentsdock.cli.timeline import clean, line_of, one_line, verdict


def said(kind, **fields):
    return str(line_of({"type": kind, "run_id": "run_1", **fields}))


def test_a_turn_reads_from_top_to_bottom():
    assert said("turn_started", backend="cursor", model="m") == (
        "turn         run_1 (cursor, model m)"
    )
    assert said("process_started", argv=["agent", "-p", "<prompt>"]) == (
        "process      agent -p <prompt>"
    )
    assert said("reasoning_summary", text="hm") == "thinks       hm"
    assert said("assistant_text", text="one\ntwo\n") == ("says         one\n             two")
    tool = {"id": "1", "name": "shell", "input": {"command": "ls -l", "cwd": "/"}}
    assert said("tool_started", tool=tool) == "tool         shell ls -l"
    assert said("tool_finished", tool=tool, outcome="failed", exit_code=2, output="no\nfile") == (
        "  failed     shell (exit 2) no file"
    )


def test_what_a_turn_changed_is_said():
    files = [{"path": "a.py"}, {"path": "b/\x1b[2Jc"}]
    assert said("code_diff", diff_files=files, additions=3, deletions=1) == (
        "changed      +3 -1 a.py, b/c"
    )


def test_what_becomes_of_a_waiting_message_is_said():
    assert said("turn_queue_updated", prompt="a better text") == "edited       a better text"
    assert said("turn_queue_run_now", message="It runs next.") == "forced       It runs next."
    assert line_of({"type": "turn_queue_reordered", "positions": []}) is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"wall_seconds": 1.26, "tree_empty": True, "rung": "subreaper"}, "1.3 s, no process left"),
        ({"code_diff_missing": "git is\nslow"}, "no diff: git is slow"),
        ({"exit_overrun": True}, "the CLI did not exit by itself"),
        ({"tree_empty": False, "survivors": [7], "rung": "subreaper"}, "PROCESSES LEFT: [7]"),
        ({"is_error": True, "code": "idle_timeout", "message": "silent"}, "idle_timeout: silent"),
    ],
)
def test_an_ending_says_what_it_is(fields, text):
    assert text in said("turn_finished", **fields)


def test_the_three_verdicts_are_told_apart():
    assert verdict({"type": "turn_finished", "is_error": False, "stopped": False}) == "succeeded"
    assert verdict({"type": "turn_finished", "is_error": True}) == "failed"
    assert verdict({"type": "turn_finished", "stopped": True}) == "stopped"
    assert verdict({"type": "turn_stopped", "recovered_after_restart": True}) == "stopped"


def test_an_unknown_event_shows_its_message_or_nothing():
    assert said("job_deferred", message="later") == "note         job_deferred: later"
    assert line_of({"type": "session_created"}) is None


@pytest.mark.parametrize("event", ["turn_queued", "turn_deferred", "error", "raw_event"])
def test_a_sparse_event_is_no_trouble(event):
    assert said(event)


def test_text_cannot_act_on_the_terminal():
    hostile = "a\x1b[31mb\x1b]8;;http://x\x07c\x1b]0;t\x1b\\d\x9b2Je\u202ef\rg\x00\b"
    assert clean(hostile) == "abcd2Jefg"
    assert clean("tab\tand\nline") == "tab\tand\nline"


def test_long_text_is_cut_and_says_so():
    assert one_line("x" * 50, 10) == "xxxxxxxxx…"
    assert "(9000 characters)" in said("assistant_text", text="y" * 9000)
