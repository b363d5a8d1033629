"""The server under test: started, watched and ended as a process of this program."""

import argparse
import asyncio
import contextlib
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import psutil

from agentsdock.testing import fake_agent
from benchmarks.driver.processes import FakeLog

NAMES = ("claude", "codex", "cursor-agent")
MARK = ".benchmarks-driver"
READY_SECONDS = 120
EXIT_SECONDS = 20


class Server:
    """One server with a state, a workspace and fake agents of its own."""

    http: httpx.AsyncClient
    popen: "subprocess.Popen[bytes]"
    process: psutil.Process
    startup: float

    def __init__(self, args: argparse.Namespace, name: str) -> None:
        self.args = args
        self.root = pathlib.Path(args.work).resolve() / name
        empty(self.root)
        self.state, self.bin, self.ws, self.home, self.logs = (
            self.root / part for part in ("state", "bin", "ws", "home", "fake")
        )
        for path in (self.state, self.bin, self.ws, self.home, self.logs):
            path.mkdir(mode=0o700)
        self._install_fakes()
        self.base = f"http://127.0.0.1:{args.port}"
        self._runs = 0

    def _install_fakes(self) -> None:
        """Copies with a ``#!`` of their own: no shell between the server and the agent."""
        body = pathlib.Path(fake_agent.__file__).read_text().split("\n", 1)[1]
        for name in NAMES:
            program = self.bin / name
            program.write_text(f"#!{self.args.fake_python} -IS\n{body}")
            program.chmod(0o755)

    def _fill(self, text: str) -> str:
        a = self.args
        return text.format(
            python=a.server_python,
            port=a.port,
            token=a.token,
            cap=a.cap,
            state=self.state,
            bin=self.bin,
            ws=self.ws,
            home=self.home,
            root=self.root,
        )

    def environ(self) -> dict[str, str]:
        own = {key: self._fill(value) for key, value in self.args.environ.items()}
        path = f"{self.bin}:/usr/local/bin:/usr/bin:/bin"
        return {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8", **own}

    @property
    def log_path(self) -> pathlib.Path:
        return self.root / "server.log"

    async def start(self) -> float:
        """Seconds from the start of the process to its first healthy answer."""
        with self.log_path.open("ab") as log:
            began = time.perf_counter()
            self.popen = subprocess.Popen(
                shlex.split(self._fill(self.args.server_cmd)),
                cwd=self.args.server_cwd,
                env=self.environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.process = psutil.Process(self.popen.pid)
        async with self.client() as http:
            while time.perf_counter() - began < READY_SECONDS:
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get("/api/health", timeout=5)).status_code == 200:
                        return time.perf_counter() - began
                if self.popen.poll() is not None:
                    raise SystemExit(f"the server ended: see {self.log_path}")
                await asyncio.sleep(0.005)
        await self.stop(hard=True)
        raise SystemExit(f"the server was not healthy within {READY_SECONDS} s")

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.base,
            timeout=120,
            headers={"Authorization": f"Bearer {self.args.token}"},
            limits=httpx.Limits(max_connections=200),
            trust_env=False,
        )

    async def stop(self, hard: bool = False) -> bool:
        """End the server; False where it had to be killed after twenty seconds."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        deadline = time.perf_counter() + EXIT_SECONDS
        while self.popen.poll() is None:
            if time.perf_counter() > deadline:
                self.popen.kill()
                self.popen.wait()
                return False
            await asyncio.sleep(0.01)
        return True

    def cpu(self) -> tuple[float, float]:
        """CPU seconds of its own, and of the children that it reaped."""
        times = self.process.cpu_times()
        return times.user + times.system, times.children_user + times.children_system

    def _helpers(self) -> Iterator[psutil.Process]:
        """The server's own helper processes: its children less the fake agents and theirs."""
        for child in self.process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                line = " ".join(child.cmdline())
                if str(self.bin) not in line and not line.startswith("sleep "):
                    yield child

    def helpers(self) -> list[tuple[int, float]]:
        found = []
        for helper in self._helpers():
            with contextlib.suppress(psutil.Error):
                found.append((helper.pid, helper.create_time()))
        return found

    def rss(self) -> tuple[float, float]:
        """Resident MB of its own, and with its helpers."""
        own = total = self.process.memory_info().rss
        for helper in self._helpers():
            with contextlib.suppress(psutil.Error):
                total += helper.memory_info().rss
        return own / 1e6, total / 1e6

    def private(self) -> float:
        """Private MB of the server and its helpers."""
        total = self.process.memory_full_info().uss
        for helper in self._helpers():
            with contextlib.suppress(psutil.Error):
                total += helper.memory_full_info().uss
        return total / 1e6

    def new_log(self) -> FakeLog:
        self._runs += 1
        return FakeLog(self.logs / f"{self._runs:06d}.jsonl")

    def argv(self) -> list[str]:
        """The command line of a bare run of the fake agent."""
        name = {"cursor": "cursor-agent"}.get(self.args.backend, self.args.backend)
        tail = ["-p", "--output-format", "stream-json"]
        return [str(self.bin / name), *(["exec", "--json", "-"] if name == "codex" else tail)]


def empty(folder: pathlib.Path) -> None:
    """A fresh folder.  One that this program did not make is not touched."""
    if folder.exists():
        if not (folder / MARK).exists():
            raise SystemExit(f"{folder} is not a scratch folder of this program: move it away")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


@contextlib.asynccontextmanager
async def serving(args: argparse.Namespace, name: str) -> AsyncIterator[Server]:
    """A healthy server; afterwards it is ended, and what its agents left with it."""
    server = Server(args, name)
    server.startup = await server.start()
    async with server.client() as http:
        server.http = http
        try:
            yield server
        finally:
            await server.stop()
            for path in server.logs.glob("*.jsonl"):
                FakeLog(path).reap()


def json_of(reply: httpx.Response) -> Any:
    reply.raise_for_status()
    return reply.json()
