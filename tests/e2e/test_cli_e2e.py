"""The commands as processes against a real server with a player as its Cursor CLI."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from agentsdock.testing.player import install_player
from agentsdock.testing.server import running_server

RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "done"}
INIT = {"type": "system", "subtype": "init", "cwd": "/", "model": "Auto"}
ID = "11111111-1111-4111-8111-111111111111"
AGENTSDOCK = [sys.executable, "-m", "agentsdock"]


def lines(*events):
    return b"".join(json.dumps({**event, "session_id": ID}).encode() + b"\n" for event in events)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def server(home):
    """One server for all tests here; each has a chat of its own."""
    settings = {
        "CURSOR_BIN": str(install_player(home / "player")),
        "CLAUDE_BIN": str(home / "no-claude"),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(home),
    }
    with running_server(home / "state", settings, token="the-token") as server:
        yield server


@pytest.fixture
def play(home):
    """Says what the next turns of the server play."""
    install_player(home / "player")
    return lambda *stream, **part: install_player(home / "player", *stream, **part)


@pytest.fixture
def command(server, play):
    """Starts a client command that knows the server."""
    with contextlib.ExitStack() as stack:

        def start(*args, **kwargs):
            process = subprocess.Popen(
                [*AGENTSDOCK, *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environ(
                    AGENTSDOCK_STATE_DIR=str(server.state_dir),
                    AGENTSDOCK_AGENT_TOKEN=server.token,
                ),
                **kwargs,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def environ(**extra):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTSDOCK_", "CURSOR_"))}
    return {**kept, **extra}


def finish(process, timeout=30):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def read_until(stream, pattern):
    """Lines up to the one that matches."""
    seen = []
    for line in stream:
        seen.append(line)
        if re.search(pattern, line):
            return seen
    raise AssertionError(f"{pattern!r} never came: {seen}")


def chat_of(err):
    return re.search(r"chat (sess_[0-9a-f]{16})", err)[1]


def test_a_turn_is_followed_to_its_success(command):
    status, out, err = finish(command("turn", "what is here?"))
    assert status == 0, err
    assert "says         I'll look round first." in out
    assert "tool         shell ls" in out
    assert out.splitlines()[-1].startswith("succeeded ")
    assert chat_of(err)


def test_events_as_json_lines_are_those_of_the_run_in_order(command):
    status, out, _ = finish(command("turn", "--json", "what is here?"))
    events = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [events[0]["type"], events[-1]["type"]] == ["turn_started", "turn_finished"]
    seqs = [event["seq"] for event in events]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert len({event["run_id"] for event in events}) == 1
    assert events[-1]["tree_empty"] is True


def test_a_failed_turn_is_status_1_with_its_code(command, play):
    play(lines(INIT), exit_status=3, stderr="no such model\n")
    status, out, _ = finish(command("turn", "what is here?"))
    assert status == 1
    assert "no such model" in out
    assert "nonzero_exit" in out.splitlines()[-1]


def test_a_second_turn_goes_into_the_same_chat(command, play):
    play(lines(INIT, RESULT))
    chat = chat_of(finish(command("turn", "one"))[2])
    status, out, err = finish(command("turn", "--session", chat, "two"))
    assert status == 0, err
    assert err == ""
    assert f"session      {ID}" in out
    listed = json.loads(finish(command("sessions", "--json"))[1])
    assert chat in [row["id"] for row in listed]
    assert chat in finish(command("sessions"))[1]


def test_what_was_said_is_found_from_the_command_line(command, play):
    play(lines(INIT, RESULT))
    chat = chat_of(finish(command("turn", "where is the \x1b[31m periwinkle"))[2])
    for scope in ((), ("--session", chat)):
        status, out, err = finish(command("search", "periw", *scope))
        assert (status, err) == (0, "")
        assert out.startswith(f"{chat}       2  user ")
        assert "\x1b" not in out
    found = json.loads(finish(command("search", "--json", '"31m periwinkle"'))[1])
    assert found["complete"]
    assert finish(command("search", "nowhere", "said"))[1] == "Nothing found.\n"
    assert finish(command("search", "x"))[0] == 1


def test_ctrl_c_stops_the_turn_and_waits_for_its_end(command, play):
    play(lines(INIT), exit_status=None)
    process = command("turn", "--json", "what is here?")
    read_until(process.stdout, "provider_session")
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    last = json.loads(out.splitlines()[-1])
    assert status == 130, err
    assert (last["type"], last["code"], last["tree_empty"]) == ("turn_finished", "stopped", True)


def test_a_stop_from_elsewhere_prints_its_receipt(command, play):
    play(lines(INIT), exit_status=None)
    process = command("turn", "what is here?")
    chat = chat_of(process.stderr.readline())
    read_until(process.stdout, f"session +{ID}")
    receipt = json.loads(finish(command("stop", chat, "--json"))[1])
    assert (receipt["outcome"], receipt["tree_empty"]) == ("stopped", True)
    status, out, _ = finish(process)
    assert status == 130
    assert out.splitlines()[-1].startswith("stopped ")
    status, out, _ = finish(command("stop", chat))
    assert (status, out) == (0, "nothing was running\n")


def test_ctrl_c_leaves_a_queued_turn_in_the_queue(command, play):
    play(lines(INIT), exit_status=None)
    first = command("turn", "one")
    chat = chat_of(first.stderr.readline())
    read_until(first.stdout, f"session +{ID}")
    second = command("turn", "--session", chat, "two")
    read_until(second.stdout, "^queued")
    second.send_signal(signal.SIGINT)
    status, _, err = finish(second)
    assert status == 130
    assert "still in the queue" in err
    assert first.poll() is None
    finish(command("stop", chat))
    assert finish(first)[0] == 130


def test_waiting_messages_are_put_in_order_from_the_command_line(command, play):
    play(lines(INIT), exit_status=None)
    first = command("turn", "one")
    chat = chat_of(first.stderr.readline())
    read_until(first.stdout, f"session +{ID}")
    rows = []
    for prompt in ("two", "three", "four"):
        waiting = command("turn", "--session", chat, "--json", prompt)
        rows.append(json.loads(waiting.stdout.readline())["queued_id"])

    def queue(*args):
        status, out, err = finish(command("queue", *args))
        assert status == 0, err
        return out

    assert queue("move", chat, rows[1], "up").splitlines()[0] == f"  1  {rows[1]}  <-"
    assert "now 3" in queue("edit", chat, rows[1], "now 3")
    assert "2 still in the queue" in queue("delete", chat, rows[0])
    listed = json.loads(queue("list", chat, "--json"))
    assert [row["prompt"] for row in listed] == ["now 3", "four"]
    assert queue("list", chat).splitlines()[1].endswith("four")
    play(lines(INIT, RESULT))
    assert "the turn that ran is stopped" in queue("run-now", chat, rows[2])
    assert finish(first)[0] == 130
    status, _, err = finish(command("queue", "delete", chat, rows[0]))
    assert (status, "not found" in err) == (1, True)


def test_a_finished_run_can_be_replayed_by_its_id(command, play):
    play(lines(INIT, RESULT))
    events = finish(command("turn", "--json", "what is here?"))[1].splitlines()
    last = json.loads(events[-1])
    status, out, err = finish(command("replay", last["run_id"], "--json"))
    judgement = json.loads(out)
    assert status == 0, err
    assert (judgement["state"], judgement["result_text"]) == ("succeeded", "done")
    assert judgement["session_id"] == last["provider_session_id"] == ID


def test_the_wrong_token_is_told(command):
    status, out, err = finish(command("sessions", "--token", "wrong"))
    assert (status, out) == (1, "")
    assert "unauthorized" in err


def test_doctor_shows_each_step_and_its_outcome(agentsdock_player, tmp_path):
    program = str(agentsdock_player())
    env = environ(CURSOR_BIN=program, AGENTSDOCK_STATE_DIR=str(tmp_path / "state"))
    done = subprocess.run([*AGENTSDOCK, "doctor"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    for argument in ("--help", "about", "--version", "status"):
        assert f"$ {program} {argument}" in done.stdout
    assert re.search(r"^cursor +ready", done.stdout, re.MULTILINE)
    assert not (tmp_path / "state").exists()


def test_doctor_without_a_usable_cli_says_why_with_status_1(tmp_path):
    env = environ(CURSOR_BIN=str(tmp_path / "nothing"))
    done = subprocess.run([*AGENTSDOCK, "doctor"], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert re.search(r"^cursor +missing", done.stdout, re.MULTILINE)


def test_the_demo_runs_one_turn_and_ends(tmp_path):
    env = environ(CURSOR_BIN=str(tmp_path / "nothing"), ONCE="1")
    done = subprocess.run(
        [*AGENTSDOCK, "demo", "--state-dir", str(tmp_path / "demo"), "--port", "0"],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a player stands in" in done.stdout
    assert "succeeded " in done.stdout


@contextlib.contextmanager
def killed_at_the_end(process):
    """A test that fails must not wait for what never ends."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_demo_stays_up_until_it_is_ended_and_takes_its_server_along(tmp_path, number, status):
    env = environ(CURSOR_BIN=str(tmp_path / "nothing"))
    with (
        subprocess.Popen(
            [*AGENTSDOCK, "demo", "--state-dir", str(tmp_path / "demo"), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        ) as demo,
        killed_at_the_end(demo),
    ):
        line = read_until(demo.stdout, "stays up")[-1]
        url = re.search(r"http://\S+", line)[0]
        address = json.loads((tmp_path / "demo" / "server.json").read_text())
        assert address["url"] == url
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert opener.open(f"{url}/healthz", timeout=10).status == 200
        demo.send_signal(number)
        assert demo.wait(30) == status
    with pytest.raises(ProcessLookupError):
        os.kill(address["pid"], 0)


def test_the_server_of_the_kit_leaves_with_status_0(agentsdock_server):
    began = time.monotonic()
    assert agentsdock_server.stop() == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("options", "hint"),
    [(["hello", "--backend", "claude"], "CLAUDE_BIN"), ([" "], "empty")],
    ids=["a CLI that cannot run", "nothing to say"],
)
def test_a_message_that_is_not_taken_leaves_no_empty_chat(command, options, hint):
    before = finish(command("sessions"))[1]
    status, _, err = finish(command("turn", *options))
    assert (status, hint in err) == (1, True), err
    assert finish(command("sessions"))[1] == before
