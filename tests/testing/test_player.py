"""An installed player as a process: probes answered, streams played as scripted."""

import json
import os
import signal
import subprocess

import pytest

from agentsdock.testing.player import Answer, calls, install_player

STREAM = b'{"type":"system"}\n{"type":"result"}\n'
TURN = ("-p", "hello", "--output-format", "stream-json", "--trust")


def run(program, *args):
    done = subprocess.run([program, *args], capture_output=True, timeout=20, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_plays_recorded_bytes_as_they_are(tmp_path):
    program = install_player(tmp_path, STREAM + b"cut \xff", exit_status=3, stderr="why\n")
    assert run(program, *TURN) == (3, STREAM + b"cut \xff", b"why\n")


def test_it_plays_a_file(tmp_path):
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_bytes(STREAM)
    assert run(install_player(tmp_path / "bin", recorded, chunk=5), *TURN) == (0, STREAM, b"")


def test_each_piece_is_an_arrival_of_its_own(tmp_path):
    program = install_player(tmp_path, STREAM, chunk=7, pause=0.02)
    with subprocess.Popen([program, *TURN], stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout.read(4096) == STREAM[:7]


def test_a_negative_status_is_a_death_by_that_signal(tmp_path):
    status, out, _ = run(install_player(tmp_path, STREAM, exit_status=-9), *TURN)
    assert (status, out) == (-signal.SIGKILL, STREAM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_without_a_status_it_stays_open_and_dies_by_the_signal_it_gets(tmp_path, number):
    program = install_player(tmp_path, STREAM, exit_status=None)
    with subprocess.Popen([program, *TURN], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() + process.stdout.readline() == STREAM
        assert process.poll() is None
        process.send_signal(number)
    assert process.returncode == -number


def test_without_a_stream_it_plays_a_demo_that_keeps_the_id_it_was_resumed_with(tmp_path):
    program = install_player(tmp_path)
    status, out, _ = run(program, *TURN, "--resume", "chat-1")
    events = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert {event["session_id"] for event in events} == {"chat-1"}
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["system", "user"]
    assert {"thinking", "assistant", "tool_call"} <= set(kinds)
    assert kinds[-1] == "result"
    ids = {json.loads(run(program, *TURN)[1].splitlines()[0])["session_id"] for _ in range(2)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--help"], b"--trust"),
        (["--version"], b"player"),
        (["status"], b"Logged in"),
        (["whoami"], b"Logged in"),
        (["--list-models"], b"auto - Auto"),
        (["models"], b"auto - Auto"),
        (["about"], b"CLI Version"),
    ],
)
def test_probes_are_answered_as_by_a_compatible_cli(tmp_path, args, word):
    status, out, err = run(install_player(tmp_path, STREAM), *args)
    assert (status, err) == (0, b"")
    assert word in out


def test_a_probe_can_be_answered_otherwise(tmp_path):
    told = {"status": Answer("Not logged in\n"), "version": Answer("boom\n", 1, on_stderr=True)}
    program = install_player(tmp_path, answers=told)
    assert run(program, "status") == (0, b"Not logged in\n", b"")
    assert run(program, "--version") == (1, b"", b"boom\n")


def test_calls_are_kept_with_arguments_and_folder(tmp_path):
    program = install_player(tmp_path, STREAM)
    assert list(calls(program)) == []
    run(program, "status")
    run(program, *TURN)
    probe, turn = calls(program)
    assert (probe.command, turn.command) == ("status", "turn")
    assert turn.argv == TURN
    assert turn.cwd == os.getcwd()


def test_installed_again_the_next_call_plays_the_new_stream(tmp_path):
    program = install_player(tmp_path, STREAM)
    run(program, *TURN)
    assert install_player(tmp_path, b"other\n") == program
    assert run(program, *TURN)[1] == b"other\n"


def test_a_folder_with_spaces_and_quotes_is_no_trouble(tmp_path):
    program = install_player(tmp_path / "it's a folder", STREAM)
    assert run(program, *TURN)[1] == STREAM


def test_a_chunk_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="chunk"):
        install_player(tmp_path, STREAM, chunk=0)
