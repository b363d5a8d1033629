"""Memory, CPU and health of a server while something runs."""

import asyncio
import subprocess
import sys
import time
from typing import Self

from benchmarks.driver.server import Server

MEMORY_SECONDS = 0.1
POLLER = """
import http.client, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
headers = {"Authorization": "Bearer " + sys.argv[2]}
while True:
    began = time.perf_counter()
    try:
        connection.request("GET", "/api/health", headers=headers)
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        connection.close()
    print(time.perf_counter() - began, flush=True)
    time.sleep(0.05)
"""


class Sampler:
    """Peak resident MB (``own``, ``tree``), CPU seconds, and how long health took each time.

    Health is asked by a process of its own: this one's loop is busy with the clients.
    """

    def __init__(self, server: Server, health: bool = False) -> None:
        self._server = server
        self._asks = health
        self._tasks: list[asyncio.Task[None]] = []
        self.own = self.tree = 0.0
        self.cpu_own = self.cpu_children = self.seconds = 0.0
        self.latency: list[float] = []

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._memory()))
        if self._asks:
            self._tasks.append(asyncio.create_task(self._health()))
            while not self.latency:
                await asyncio.sleep(0.01)
            self.latency.clear()
        self._cpu, self._began = self._server.cpu(), time.perf_counter()
        return self

    async def __aexit__(self, *exc: object) -> None:
        own, children = self._server.cpu()
        self.seconds = time.perf_counter() - self._began
        self.cpu_own, self.cpu_children = own - self._cpu[0], children - self._cpu[1]
        self.latency = self.latency or [0.0]  # it was over before the first answer
        self._look()
        await asyncio.sleep(0)  # lets the poller's last lines in
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look(self) -> None:
        own, tree = self._server.rss()
        self.own, self.tree = max(self.own, own), max(self.tree, tree)

    async def _memory(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(MEMORY_SECONDS)

    async def _health(self) -> None:
        args = self._server.args
        poller = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", POLLER, str(args.port), args.token),
            stdout=subprocess.PIPE,
        )
        assert poller.stdout is not None
        try:
            async for line in poller.stdout:
                self.latency.append(float(line))
        finally:
            poller.kill()
            await poller.wait()
