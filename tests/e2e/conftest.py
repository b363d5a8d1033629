"""A real server whose Cursor CLI does what its prompt says."""

import contextlib
import pathlib
import sys

import httpx
import pytest
import trio
from trio_websocket import ConnectionClosed, wrap_client_stream

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


@pytest.fixture
def environment(cursor_cli, tmp_path):
    return {
        "CURSOR_BIN": str(cursor_cli),
        "AGENTSDOCK_BACKEND": "cursor",
        "AGENTSDOCK_AGENT_CWD": str(tmp_path),
        "AGENTSDOCK_STOP_GRACE_SECONDS": "0.2",
    }


@pytest.fixture
def live_server(environment, tmp_path):
    with running_server(tmp_path / "state", environment, token=TOKEN) as server:
        yield server


class House:
    """What a client does with a server."""

    def __init__(self, server):
        self.server = server
        self.port = int(server.url.rpartition(":")[2])
        headers = {"X-AgentsDock-Token": server.token} if server.token else {}
        self.http = httpx.AsyncClient(
            base_url=server.url, headers=headers, trust_env=False, timeout=30
        )

    async def chat(self):
        answer = await self.http.post("/api/sessions", json={"backend": "cursor"})
        return answer.json()["session"]["id"]

    async def turn(self, chat, prompt):
        answer = await self.http.post(f"/api/sessions/{chat}/turns", json={"prompt": prompt})
        assert answer.status_code == 200, answer.text
        return answer.json()["run_id"]

    async def connect(self, receive_buffer=None):
        sock = trio.socket.socket()
        if receive_buffer:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        try:
            await sock.connect(("127.0.0.1", self.port))
        except BaseException:
            sock.close()
            raise
        return trio.SocketStream(sock)

    @contextlib.asynccontextmanager
    async def follow(self, chat, after=0, receive_buffer=None, query=""):
        path = f"/api/sessions/{chat}/events?after={after}{query}"
        headers = [(b"x-agentsdock-token", self.server.token.encode())]
        async with (
            await self.connect(receive_buffer) as stream,
            trio.open_nursery() as nursery,
        ):
            socket = await wrap_client_stream(
                nursery, stream, f"127.0.0.1:{self.port}", path, extra_headers=headers
            )
            with contextlib.suppress(ConnectionClosed):
                async with socket:
                    yield socket

    @property
    def log(self):
        return self.server.log.read_text(errors="replace")


@pytest.fixture
async def house(live_server):
    house = House(live_server)
    async with house.http:
        with trio.fail_after(120):
            yield house
