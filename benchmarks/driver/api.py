"""Chats, turns and events of the server under test, as a client sees them."""

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Collection
from typing import Any, NamedTuple, Self

import websockets
from attrs import frozen

from benchmarks.driver.processes import FakeLog
from benchmarks.driver.server import Server, json_of

TERMINAL = {"turn_finished", "turn_stopped"}
PROVIDER = {"raw_event", "assistant_text"}
"""Events that a line of the agent's stream became."""


class Row(NamedTuple):
    """An event as it arrived: epoch seconds, and what tells it from others."""

    at: float
    seq: int | None
    type: str
    run_id: str | None
    failed: bool


@frozen
class Turn:
    """Times in epoch seconds; ``end`` is None where no terminal event came in time."""

    run_id: str | None
    posting: float
    posted: float
    end: float | None
    log: FakeLog


class Watch:
    """One WebSocket client: what came, and when."""

    ws: websockets.ClientConnection

    def __init__(
        self,
        server: Server,
        session: str,
        after: int = 0,
        full: bool = True,
        keep: bool = True,
        max_queue: int = 16,
    ) -> None:
        query = f"after={after}" + ("&visible=false" if full else "")
        self._url = f"{server.base.replace('http', 'ws')}/api/sessions/{session}/events?{query}"
        self._token, self._keep, self._max_queue = server.args.token, keep, max_queue
        self._changed, self._closed = asyncio.Event(), False
        self.rows: list[Row] = []
        self.events: list[dict[str, Any]] = []
        self.bytes = 0

    async def open(self) -> Self:
        self.ws = await websockets.connect(
            self._url,
            additional_headers={"Authorization": f"Bearer {self._token}"},
            max_size=None,
            compression=None,
            max_queue=self._max_queue,
            proxy=None,
        )
        return self

    async def __aenter__(self) -> Self:
        await self.open()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(websockets.WebSocketException, OSError):
            await self.ws.close()

    async def _read(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for text in self.ws:
                self._take(text)
        self._closed = True
        self._changed.set()

    def _take(self, text: str | bytes) -> None:
        now = time.time()
        event = json.loads(text)
        self.bytes += len(text)
        self.rows.append(
            Row(
                now,
                event.get("seq"),
                event["type"],
                event.get("run_id"),
                bool(event.get("is_error")),
            )
        )
        if self._keep:
            self.events.append(event)
        self._changed.set()

    def when(self, types: Collection[str], run_id: str | None = None) -> float | None:
        return next((row.at for row in self.rows if _is(row, types, run_id)), None)

    async def until(
        self, types: Collection[str], run_id: str | None = None, timeout: float = 60.0
    ) -> float | None:
        """When the first such event came; None at the timeout or where the server is gone."""
        deadline, index = time.time() + timeout, 0
        while True:
            self._changed.clear()
            for row in self.rows[index:]:
                index += 1
                if _is(row, types, run_id):
                    return row.at
            left = deadline - time.time()
            if left <= 0 or self._closed:
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(left, 1.0))

    def failures(self) -> int:
        """Turns that ended in an error: whoever measures them measures something else."""
        return sum(row.failed for row in self.rows if row.type in TERMINAL)


def _is(row: Row, types: Collection[str], run_id: str | None) -> bool:
    return row.type in types and (run_id is None or row.run_id == run_id)


async def new_session(server: Server, title: str = "bench") -> str:
    body = {"title": title, "cwd": str(server.ws), "backend": server.args.backend}
    reply = json_of(await server.http.post("/api/sessions", json=body))
    return str(reply["session"]["id"])


async def post_turn(server: Server, session: str, orders: str) -> dict[str, Any]:
    body = {"prompt": f"bench {orders}"}
    reply: dict[str, Any] = json_of(
        await server.http.post(f"/api/sessions/{session}/turns", json=body)
    )
    return reply


def marker(log: FakeLog | None = None, **options: Any) -> str:
    """The fake agent's orders."""
    pairs = [f"{key}={value}" for key, value in options.items()]
    return f"[[fake {' '.join([*pairs, *([f'log={log.path}'] if log else [])])}]]"


async def one_turn(
    server: Server, session: str, watch: Watch, timeout: float = 120.0, **options: Any
) -> Turn:
    """Run one turn to its terminal event."""
    log = server.new_log()
    posting = time.time()
    reply = await post_turn(server, session, marker(log, **options))
    posted = time.time()
    run_id = reply.get("run_id")
    end = await watch.until(TERMINAL, run_id, timeout)
    return Turn(run_id, posting, posted, end, log)


async def all_events(server: Server, session: str) -> list[dict[str, Any]]:
    """Every event that REST gives, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["seq"] if found else 0
        params = {"after": after, "limit": 1000, "tail": "false"}
        page = json_of(await server.http.get(f"/api/sessions/{session}", params=params))
        if not page["events"]:
            return found
        found += page["events"]


async def bare(server: Server, reps: int, **options: Any) -> list[float]:
    """Seconds that the fake agent needs alone, from spawn to exit, its output drained."""
    times = []
    for _ in range(reps):
        began = time.perf_counter()
        agent = await asyncio.create_subprocess_exec(
            *server.argv(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=server.ws,
            limit=64 * 1024 * 1024,
        )
        await agent.communicate(marker(**options).encode())
        times.append(time.perf_counter() - began)
    return times
