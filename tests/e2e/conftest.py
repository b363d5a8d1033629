"""A real server whose Cursor CLI does what its prompt says."""

import pathlib
import sys

import pytest
import trio
from serving_house import House

from agentsdock.testing import fake_agent
from agentsdock.testing.server import running_server

TOKEN = "e2e-SECRET-7"


@pytest.fixture(scope="session")
def cursor_cli(tmp_path_factory):
    program = tmp_path_factory.mktemp("bin") / "cursor-agent"
    _, _, source = pathlib.Path(fake_agent.__file__).read_text().partition("\n")
    program.write_text(f"#!{sys.executable} -IS\n{source}")
    program.chmod(0o755)
    return program


def settings(cursor_cli, folder):
    return {
        "CURSOR_BIN": str(cursor_cli),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(folder),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }


@pytest.fixture
def environment(cursor_cli, tmp_path):
    return settings(cursor_cli, tmp_path)


@pytest.fixture(scope="module")
def shared_server(cursor_cli, tmp_path_factory):
    """One for all tests of a module: each has chats of its own."""
    folder = tmp_path_factory.mktemp("shared")
    with running_server(folder / "state", settings(cursor_cli, folder), token=TOKEN) as server:
        yield server


@pytest.fixture
def live_server(environment, tmp_path):
    with running_server(tmp_path / "state", environment, token=TOKEN) as server:
        yield server


@pytest.fixture
async def house(live_server):
    house = House(live_server)
    async with house.http:
        with trio.fail_after(120):
            yield house
