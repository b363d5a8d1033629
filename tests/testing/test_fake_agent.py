"""The fake agent as a process: what it says, breaks and leaves behind, by the marker's word."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from agentsdock.testing import fake_agent

PROGRAM = pathlib.Path(fake_agent.__file__)


def start(*args, stdin=subprocess.DEVNULL, who="cursor-agent"):
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM), *args],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "FAKE_AGENT_AS": who},
    )


def run(*args, **kwargs):
    process = start(*args, **kwargs)
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def turn(orders="", *flags, **kwargs):
    status, out, err = run("-p", f"do it [[fake {orders}]]", *flags, **kwargs)
    return status, [json.loads(line) for line in out.splitlines()], err


def kinds(events):
    return [event["type"] for event in events]


def logged(path, step):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["step"] == step]


def test_a_plain_turn_is_init_prompt_text_and_result():
    status, events, err = turn()
    assert (status, err) == (0, b"")
    assert kinds(events) == ["system", "user", "assistant", "result"]
    assert events[-1]["is_error"] is False
    assert events[-1]["result"].startswith("#000000 ")
    assert len({event["session_id"] for event in events}) == 1


def test_a_resumed_conversation_keeps_its_id():
    _, events, _ = turn("", "--resume", "chat-7")
    assert {event["session_id"] for event in events} == {"chat-7"}
    _, events, _ = turn("", "--resume=chat-8")
    assert {event["session_id"] for event in events} == {"chat-8"}


def test_texts_are_numbered_and_have_the_size_that_was_asked_for():
    _, events, _ = turn("events=3 size=40 tools=2 toolsize=5")
    texts = [e["message"]["content"][0]["text"] for e in events if e["type"] == "assistant"]
    assert [text[:7] for text in texts] == ["#000000", "#000001", "#000002"]
    assert {len(text) for text in texts} == {40}
    calls = [e for e in events if e["type"] == "tool_call"]
    assert [call["subtype"] for call in calls] == ["started", "completed"] * 2
    assert calls[1]["tool_call"]["shellToolCall"]["result"]["success"]["stdout"] == "yyyyy"


def test_the_last_marker_counts():
    _, events, _ = turn("events=5]] and [[fake events=2")
    assert kinds(events).count("assistant") == 2


def test_an_order_on_stdin_counts_where_no_argument_has_one(tmp_path):
    order = tmp_path / "order"
    order.write_text("go [[fake noresult=1 exit=4]]")
    with order.open() as stdin:
        status, out, _ = run("exec", "--json", "-", stdin=stdin, who="codex")
    assert status == 4
    assert kinds(map(json.loads, out.splitlines())) == [
        "thread.started",
        "turn.started",
        "item.completed",
    ]


@pytest.mark.parametrize(
    ("who", "last"), [("claude", "result"), ("codex", "turn.completed"), ("cursor-agent", "result")]
)
def test_each_cli_ends_in_its_own_words(who, last):
    _, events, _ = turn("tools=1", who=who)
    assert events[-1]["type"] == last


def test_faults_of_the_stream():
    _, events, _ = turn("noinit=1")
    assert kinds(events) == ["assistant", "result"]
    status, events, _ = turn("error=1 subtype=success exit=3")
    assert (status, events[-1]["is_error"], events[-1]["subtype"]) == (3, True, "success")
    _, out, err = run("-p", "[[fake garbage=100 nonjson=2 badutf8=1 nonl=1 stderr=70000]]")
    assert b"garbage " + b"x" * 100 + b"\n" in out
    assert out.count(b"is prose {") == 2
    assert b"\xff\xfe" in out
    assert not out.endswith(b"\n")
    assert len(err) == 70000


def test_it_hangs_after_init_until_it_is_ended():
    process = start("-p", "[[fake hang=1]]")
    assert json.loads(process.stdout.readline())["subtype"] == "init"
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_a_cli_that_ignores_sigterm_dies_by_sigkill():
    process = start("-p", "[[fake hang=1 ignoreterm=1]]")
    process.stdout.readline()
    process.terminate()
    process.send_signal(signal.SIGINT)
    process.kill()
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL


def test_it_tells_which_processes_it_left_behind(tmp_path):
    log = tmp_path / "log"
    status, _, _ = turn(f"child=plain,setsidterm childlife=30 log={log}")
    children = {row["kind"]: row for row in logged(log, "child")}
    try:
        assert status == 0
        assert children["setsidterm"]["sid"] != os.getsid(0)
        assert children["plain"]["sid"] == os.getsid(0)
        for row in children.values():
            os.kill(row["pid"], 0)
        os.kill(children["setsidterm"]["pid"], signal.SIGTERM)
        os.kill(children["setsidterm"]["pid"], 0)
    finally:
        for row in children.values():
            os.kill(row["pid"], signal.SIGKILL)
    assert len(logged(log, "start")) == len(logged(log, "end")) == 1


def test_a_daemon_can_hold_the_pipe_open(tmp_path):
    log = tmp_path / "log"
    process = start("-p", f"[[fake child=setsid holdpipe=1 childlife=30 log={log}]]")
    process.wait(timeout=20)
    (child,) = logged(log, "child")
    os.kill(child["pid"], signal.SIGKILL)
    assert process.stdout.read().endswith(b"\n")
    process.communicate()


@pytest.mark.parametrize("who", ["claude", "codex", "cursor-agent"])
def test_probe_commands_answer_and_start_no_turn(who):
    for args in (["--version"], ["--help"], ["status"]):
        status, out, err = run(*args, who=who)
        assert (status, err) == (0, b"")
        assert out.strip()
        assert not out.startswith(b"{")


def test_cursor_help_lists_what_a_compatible_build_must_have():
    _, out, _ = run("--help")
    for option in (b"--print", b"--output-format", b"stream-json", b"--resume", b"--model"):
        assert option in out
    for option in (b"--trust", b"--force", b"--mode", b"plan", b"--list-models"):
        assert option in out
    assert b"Cursor CLI" in run("about")[1]


def test_a_reader_that_goes_away_is_no_traceback():
    process = start("-p", "[[fake events=100000 size=100]]")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=20) == 141
    assert process.stderr.read() == b""
    process.stderr.close()
