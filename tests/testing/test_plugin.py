"""The pytest plugin as another project's test suite would meet it."""

import os
import subprocess
import sys

import pytest

SUITE = """
import urllib.request

STREAM = (
    b'{"type":"system","subtype":"init","session_id":"s-1"}\\n'
    b'{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s-1"}\\n'
)

def test_a_stream_is_judged(agentsdock_replay, tmp_path):
    judgement = agentsdock_replay(STREAM, exit_status=0, chunk=3)
    assert (judgement.state, judgement.result_text) == ("succeeded", "ok")
    recorded = tmp_path / "recorded"
    recorded.write_bytes(STREAM)
    assert agentsdock_replay(recorded, exit_status=0) == judgement

def test_a_player_is_installed(agentsdock_player):
    program = agentsdock_player(STREAM, exit_status=3)
    assert program.name == "cursor-agent"

def test_a_server_answers(agentsdock_server):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    assert opener.open(agentsdock_server.url + "/healthz", timeout=10).status == 200
    print("server", agentsdock_server.process.pid)
"""


def run_pytest(folder, *args):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_its_fixtures_work_in_a_plain_test_suite_and_leave_nothing(tmp_path):
    (tmp_path / "test_ours.py").write_text(SUITE)
    done = run_pytest(tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    pid = int(done.stdout.partition("\nserver ")[2].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_unused_it_imports_nothing_of_ours_but_itself(tmp_path):
    (tmp_path / "test_ours.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    ours = {name for name in sys.modules if name.startswith('agentsdock')}\n"
        "    assert ours == {'agentsdock', 'agentsdock.testing', 'agentsdock.testing.plugin'}\n"
        "    assert 'httpx' not in sys.modules\n"
    )
    done = run_pytest(tmp_path, "-p", "no:anyio", "-p", "no:hypothesispytest")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_server_that_cannot_start_is_an_error_with_its_log(tmp_path):
    (tmp_path / "test_ours.py").write_text(
        "import pytest\n"
        "from agentsdock.testing.server import ServerNotReady, running_server\n"
        "def test_it(tmp_path):\n"
        "    with pytest.raises(ServerNotReady, match='JOB_BUSY_RETRY_SECONDS'):\n"
        "        with running_server(tmp_path, {'AGENTSDOCK_JOB_BUSY_RETRY_SECONDS': 'x'}):\n"
        "            pass\n"
    )
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
