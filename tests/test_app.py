"""The server as a process: how it starts, and how it leaves."""

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
import trio
from trio_websocket import ConnectionClosed, open_websocket_url

from agentsdock.testing.server import running_server

INIT = {"type": "system", "subtype": "init", "cwd": "/", "model": "Auto"}
ID = "11111111-1111-4111-8111-111111111111"


def lines(*events):
    return b"".join(json.dumps({**event, "session_id": ID}).encode() + b"\n" for event in events)


@pytest.fixture
def environ(tmp_path, agentsdock_player):
    player = agentsdock_player(lines(INIT), exit_status=None)
    return {
        "CURSOR_BIN": str(player),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
    }


@pytest.fixture
def server(tmp_path, environ):
    with running_server(tmp_path / "state", environ) as server:
        yield server


def client(server):
    return httpx.Client(base_url=server.url, trust_env=False, timeout=30)


def serve_again(server, environ, *options):
    """A second server; what it said and how it ended."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("AGENTSDOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "agentsdock", "serve", *options],
        env={**env, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def log_lines(server):
    return [json.loads(line) for line in server.log.read_text().splitlines()]


@asynccontextmanager
async def socket_of(server, chat, after=0):
    url = f"ws{server.url[4:]}/api/sessions/{chat}/events?after={after}"
    with trio.fail_after(60):
        async with open_websocket_url(url) as socket:
            yield socket
        # The client library leaves this to the garbage collector if the server closes first.
        await socket._close_stream()


async def following(server, chat, until):
    """Follow a chat from its start; the events, once ``until`` says so of the last."""
    seen = []
    async with socket_of(server, chat) as socket:
        while not seen or not until(seen[-1]):
            seen.append(json.loads(await socket.get_message()))
    return seen


def test_its_address_is_written_down_for_as_long_as_it_is_there(server):
    path = server.state_dir / "server.json"
    assert json.loads(path.read_text()) == {"url": server.url, "pid": server.process.pid}
    assert path.stat().st_mode & 0o777 == 0o600
    assert server.stop() == 0
    assert not path.exists()
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_turn_its_processes_and_then_the_server(server, number):
    async def run():
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
            chat = (await http.post("/api/sessions", json={})).json()["session"]["id"]
            await http.post(f"/api/sessions/{chat}/turns", json={"prompt": "hello"})
            running = await following(server, chat, lambda e: e["type"] == "provider_session")
            async with socket_of(server, chat, running[-1]["seq"]) as socket:
                server.process.send_signal(number)
                with pytest.raises(ConnectionClosed) as closed:
                    while True:
                        await socket.get_message()
            assert closed.value.reason.code == 1012
            return chat

    chat = trio.run(run)
    assert server.process.wait(30) == 0
    with running_server(server.state_dir, {}) as again, client(again) as http:
        events = http.get(f"/api/sessions/{chat}").json()["events"]
    endings = [event for event in events if event["type"].startswith("turn_f")]
    assert [(e["code"], e["tree_empty"]) for e in endings] == [("server_shutdown", True)]
    assert not [event for event in events if event["type"] == "turn_stopped"]


def test_clients_are_told_that_it_leaves_though_nothing_runs(server):
    async def run():
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
            chat = (await http.post("/api/sessions", json={})).json()["session"]["id"]
        async with socket_of(server, chat) as socket:
            await socket.get_message()
            server.process.terminate()
            with pytest.raises(ConnectionClosed) as closed:
                await socket.get_message()
        assert closed.value.reason.code == 1012

    trio.run(run)
    assert server.process.wait(30) == 0


def test_a_second_server_for_the_same_folder_says_so(server, environ):
    done = serve_again(server, environ, "--port", "0", "--state-dir", str(server.state_dir))
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert f"process {server.process.pid}" in line
    assert str(server.state_dir) in line
    with client(server) as http:
        assert http.get("/healthz").text == "ok"
    assert (server.state_dir / "server.json").exists()


def test_a_port_that_is_taken_is_named(server, environ, tmp_path):
    port = server.url.rpartition(":")[2]
    done = serve_again(server, environ, "--port", port, "--state-dir", str(tmp_path / "other"))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert f"port {port}" in line
    assert "AGENTSDOCK_AGENT_PORT" in line


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"AGENTSDOCK_MAX_ACTIVE_AGENT_RUNS": "many"}, "AGENTSDOCK_MAX_ACTIVE_AGENT_RUNS"),
        ({"AGENTSDOCK_AGENT_BIND": "0.0.0.0"}, "AGENTSDOCK_AGENT_TOKEN"),
        ({"AGENTSDOCK_STATE_DIR": "/dev/null/state"}, "/dev/null/state"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(setting, said, environ):
    done = serve_again(None, {**environ, **setting}, "--port", "0")
    assert done.returncode in (1, 2)
    [line] = done.stderr.splitlines()
    assert said in line


def test_a_damaged_database_is_set_aside_and_told(tmp_path, environ):
    state = tmp_path / "state"
    state.mkdir(0o700)
    (state / "agentsdock.db").write_bytes(b"garbage " * 1000)
    with running_server(state, environ) as server, client(server) as http:
        name = http.get("/api/health").json()["set_aside"]["database"]
        assert (state / name).read_bytes() == b"garbage " * 1000
        server.stop()
        told = [line for line in log_lines(server) if line["event"].startswith("damaged database")]
    assert [(line["level"], line["kept_as"]) for line in told] == [("error", name)]


def test_no_prompt_and_no_token_is_ever_logged(tmp_path, environ):
    state = tmp_path / "state"
    with running_server(state, environ, token="the-secret-token") as server:
        headers = {"authorization": "Bearer the-secret-token"}
        with client(server) as http:
            chat = http.post("/api/sessions", json={}, headers=headers).json()["session"]["id"]
            url = f"/api/sessions/{chat}/turns"
            http.post(url, json={"prompt": "my own words"}, headers=headers)
            http.post(f"/api/sessions/{chat}/stop", headers=headers)
            http.get("/api/sessions?token=the-secret-token")
        server.stop()
        told = server.log.read_text()
    events = [line["event"] for line in log_lines(server)]
    assert events[0] == "listening"
    assert {"turn started", "turn ended", "shutting down"} <= set(events)
    ended = next(line for line in log_lines(server) if line["event"] == "turn ended")
    assert (ended["chat"], ended["code"], ended["tree_empty"]) == (chat, "stopped", True)
    assert ended["run"].startswith("run_")
    assert "my own words" not in told
    assert "secret-token" not in told
