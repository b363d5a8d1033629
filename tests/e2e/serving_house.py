"""What a client does with a real server."""

import contextlib
import pathlib

import documented
import httpx
import trio
from trio_websocket import ConnectionClosed, wrap_client_stream


def peak_memory(pid):
    """The most that a process has had in memory, in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


class House:
    def __init__(self, server):
        self.server = server
        self.port = int(server.url.rpartition(":")[2])
        headers = {"X-AgentsDock-Token": server.token} if server.token else {}
        self.http = httpx.AsyncClient(
            base_url=server.url,
            headers=headers,
            trust_env=False,
            timeout=30,
            event_hooks={"response": [documented.check_later]},
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
