"""What a server is started with: nothing of it that is not theirs reaches its children."""

import contextlib
import json
import os
import pathlib
import sys

import psutil
import pytest
import trio
from chaos.cli_program import install_cli
from chaos.witness import Witness

from agentsdock.client.http import Client
from agentsdock.testing.server import running_server

TOKEN = "surroundings-SECRET-5"
SWITCHES = {
    "NODE_OPTIONS": "--use-env-proxy",
    "LD_PRELOAD": "",
    "PYTHONPATH": "/nonexistent",
    "PYTHONSTARTUP": "/nonexistent/startup.py",
    "PYTHONUNBUFFERED": "1",
    "DYLD_INSERT_LIBRARIES": "/nonexistent.dylib",
}
SECRETS = {
    "ZENITHDOCK_AGENT_TOKEN": TOKEN,
    "ZENITHBOT_AGENT_TOKEN": TOKEN,
    "AGENTSDOCK_ALLOWED_HOSTS": f"{TOKEN}.example",
}
SERVER = (sys.executable, "-m", "agentsdock")


@pytest.fixture
def environment(tmp_path):
    program = install_cli(tmp_path, pathlib.Path(__file__).with_name("telling_cli.py"))
    return {
        **SWITCHES,
        **SECRETS,
        "CURSOR_BIN": str(program),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }


@pytest.fixture
def live_server(environment, tmp_path):
    with running_server(tmp_path / "state", environment, token=TOKEN) as server:
        yield server


def calls(folder):
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


async def test_no_switch_and_no_secret_of_the_server_reaches_a_child(house, tmp_path):
    witness = Witness(await house.chat())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(witness.follow, house.server)
        await house.turn(witness.chat, "[[fake hang=1 child=setsid]]")
        await witness.hear(lambda timeline: timeline.has("provider_session"))
        children = psutil.Process(house.server.process.pid).children(recursive=True)
        assert len(children) >= 5, "zygote, its spare, guard, CLI and the child of that"
        for child in children:
            told = pathlib.Path(f"/proc/{child.pid}")
            assert TOKEN.encode() not in (told / "environ").read_bytes()
            assert TOKEN.encode() not in (told / "cmdline").read_bytes()
        await house.http.post(f"/api/sessions/{witness.chat}/stop")
        nursery.cancel_scope.cancel()
    told = calls(tmp_path)
    assert len(told) > 3, "probes too"
    for call in told:
        assert not SWITCHES.keys() & call["environment"].keys()
        assert TOKEN not in json.dumps(call)
        assert call["stdin"] == ""
        assert call["descriptors"] == [0, 1, 2]


@contextlib.contextmanager
def open_pipe(tmp_path):
    path = tmp_path / "endless"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    yield f"<{path}"
    os.close(writer)


@contextlib.contextmanager
def terminal(tmp_path):
    master, slave = os.openpty()
    yield f"<{os.ttyname(slave)}"
    os.close(slave)
    os.close(master)


@contextlib.contextmanager
def closed(tmp_path):
    yield "<&-"


@contextlib.contextmanager
def all_closed(tmp_path):
    yield "<&- >&- 2>&-"


async def turn(server):
    async with Client(server.url, TOKEN) as client:
        chat = (await client.create_session(backend="cursor"))["id"]
        await client.post_turn(chat, "[[fake]]")
        async with client.events(chat) as events:
            while (event := await anext(events))["type"] != "turn_finished":
                pass
            return event


@pytest.mark.parametrize("streams", [open_pipe, terminal, closed, all_closed])
def test_a_turn_runs_whatever_the_standard_streams_of_the_server_are(
    streams, environment, tmp_path
):
    with streams(tmp_path) as redirection:
        shell = ("sh", "-c", f'exec "$@" {redirection}', "sh", *SERVER)
        with running_server(tmp_path / "state", environment, token=TOKEN, program=shell) as server:
            ending = trio.run(turn, server)
            assert server.stop() == 0
    assert ending["code"] is None
    for call in calls(tmp_path):
        assert call["stdin"] == ""
        assert call["descriptors"] == [0, 1, 2]
