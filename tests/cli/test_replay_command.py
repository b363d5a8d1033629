"""``agentsdock replay``: every recording has one verdict, for people and for programs."""

import json
import pathlib
import subprocess
import sys

import pytest
from click.testing import CliRunner

from agentsdock.cli.main import main

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
CURSOR = FIXTURES / "cursor"
ROWS = json.loads((CURSOR / "expected.json").read_text())["fixtures"]
KEYS = {
    "state",
    "is_error",
    "code",
    "result_text",
    "session_id",
    "segments",
    "tools",
    "events",
}
TOOL_KEYS = {"total", "ok", "failed", "rejected", "unfinished"}


def replay(*args):
    done = CliRunner().invoke(main, ["replay", *map(str, args)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def judged(*args):
    done = replay(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def fixture_args(row):
    args = [CURSOR / row["file"]]
    if isinstance(row["exit_status"], int):
        args += ["--exit-status", str(row["exit_status"])]
    if row["stderr"]:
        args += ["--stderr", row["stderr"]]
    if "--resume" in row["argv_hint"]:
        args += ["--resume", row["session_id"]]
    return args


def words(code):
    return {"approval-requested": "approval_required"}.get(code, code and code.replace("-", "_"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_each_cursor_fixture_is_judged_as_its_table_says(row):
    judgement = judged(*fixture_args(row))
    assert set(judgement) == KEYS
    assert judgement["state"] == row["final_state"]
    assert judgement["is_error"] is row["is_error"]
    assert judgement["code"] in {
        words(code) for code in (row["error_code"], *row["also_acceptable"])
    }
    assert judgement["result_text"] == row["final_text"]
    assert judgement["tools"]["total"] == row["tool_calls"]
    assert {k: n for k, n in judgement["tools"].items() if k != "total" and n} == row[
        "tool_outcomes"
    ]
    if row["assistant_segments"] is not None:
        assert judgement["segments"] == row["assistant_segments"]
    terminals = [e for e in judgement["events"] if e["type"] == "turn_finished"]
    assert terminals == judgement["events"][-1:]
    assert terminals[0]["result_text"] == judgement["result_text"]
    assert terminals[0]["is_error"] is judgement["is_error"]


def test_the_split_of_the_bytes_changes_nothing():
    recording = CURSOR / "10-parallel-tools-newline-ids.jsonl"
    whole = judged(recording, "--exit-status", 0)
    for size in (1, 7, 4096):
        assert judged(recording, "--exit-status", 0, "--chunk", size) == whole


@pytest.mark.parametrize(
    ("backend", "file"),
    [("claude", "plain.jsonl"), ("codex", "plain.jsonl"), ("cursor", "01-simple-success.jsonl")],
)
def test_all_keys_are_there_for_all_three_clis(backend, file):
    recording = FIXTURES / backend / file
    judgement = judged(recording, "--backend", backend, "--exit-status", 0)
    assert set(judgement) == KEYS
    assert set(judgement["tools"]) == TOOL_KEYS
    assert all(isinstance(count, int) for count in judgement["tools"].values())
    assert (judgement["state"], judgement["code"]) == ("succeeded", None)
    assert judgement["session_id"]


def test_a_cli_that_stays_open_is_ended_at_once_by_the_limit_that_is_due(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    assert judged(empty)["code"] == "startup_timeout"
    assert judged(empty)["session_id"] is None
    assert judged(CURSOR / "14-missing-result.jsonl")["code"] == "idle_timeout"
    assert judged(CURSOR / "23-approval-request-unanswered.jsonl")["code"] == "approval_required"
    overrun = judged(CURSOR / "01-simple-success.jsonl")
    assert (overrun["state"], overrun["code"]) == ("succeeded", None)
    assert overrun["events"][-1]["exit_overrun"] is True


@pytest.mark.parametrize("status", ["-9", "signal:9"])
def test_a_signal_may_be_written_either_way(status):
    judgement = judged(CURSOR / "01-simple-success.jsonl", "--exit-status", status)
    assert judgement["code"] == "nonzero_exit"
    assert judgement["events"][-1]["exit_code"] == -9


def test_another_conversation_than_the_one_resumed_is_a_mismatch():
    judgement = judged(CURSOR / "09-resume.jsonl", "--exit-status", 0, "--resume", "other")
    assert judgement["code"] == "session_mismatch"


def test_stderr_is_quoted_where_the_stream_says_nothing(tmp_path):
    silent = tmp_path / "silent"
    silent.touch()
    judgement = judged(silent, "--exit-status", 1, "--stderr", "the roof is on fire")
    assert "the roof is on fire" in judgement["events"][-1]["message"]


@pytest.mark.parametrize(
    "args",
    [
        ["no-such-file"],
        ["run_0123456789abcdef", "--state-dir", "nowhere"],
        [str(CURSOR)],
        [str(CURSOR / "01-simple-success.jsonl"), "--exit-status", "high"],
        [str(CURSOR / "01-simple-success.jsonl"), "--exit-status", "256"],
        [str(CURSOR / "01-simple-success.jsonl"), "--exit-status", "signal:0"],
        [str(CURSOR / "01-simple-success.jsonl"), "--chunk", "0"],
        [str(CURSOR / "01-simple-success.jsonl"), "--backend", "parrot"],
        [],
    ],
    ids=str,
)
def test_bad_use_is_status_2_and_no_verdict(args):
    done = replay(*args)
    assert done.exit_code == 2
    assert done.stdout == ""


def test_a_person_sees_timeline_and_verdict():
    text = replay(CURSOR / "03-shell-rejected.jsonl", "--exit-status", 0).stdout
    assert "says         Running the linter." in text
    assert "tool         shell ruff check ." in text
    assert "  rejected   shell" in text
    assert "verdict      succeeded" in text


def test_no_control_sequence_of_a_recording_reaches_the_terminal(tmp_path):
    lines = (
        (CURSOR / "01-simple-success.jsonl")
        .read_text()
        .replace("A small", r"\u001b[2J\u001b]0;gone\u0007A\u202esmall")
    )
    recording = tmp_path / "hostile.jsonl"
    recording.write_text(lines)
    text = replay(recording, "--exit-status", 0).stdout
    assert "Asmall" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_as_a_process_it_prints_one_object_and_nothing_else():
    recording = CURSOR / "19-unicode-and-lone-surrogates.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "agentsdock", "replay", "--json", "--exit-status", "0", recording],
        capture_output=True,
        check=True,
        timeout=30,
        env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"},
    )
    assert done.stderr == b""
    assert json.loads(done.stdout)["state"] == "succeeded"
