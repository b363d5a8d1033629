"""Guarded processes in memory: a test plays the CLI and the guard, byte by byte."""

import json
from collections.abc import Callable

import trio
import trio.testing

from agentsdock.guard.contract import LaunchSpec, Report, SpawnFailed

PROVIDER = "11111111-1111-4111-8111-111111111111"


def line(type: str, **fields) -> bytes:
    return json.dumps({"type": type, "session_id": PROVIDER, **fields}).encode() + b"\n"


def init(session_id: str = PROVIDER) -> bytes:
    return line("system", subtype="init", cwd="/", model="Auto", session_id=session_id)


INIT = init()


def text(said: str) -> bytes:
    message = {"role": "assistant", "content": [{"type": "text", "text": said}]}
    return line("assistant", message=message)


def result(said: str = "done", *, is_error: bool = False) -> bytes:
    subtype = "error" if is_error else "success"
    return line("result", subtype=subtype, is_error=is_error, result=said, duration_ms=1)


RESULT = result()


def tool(call_id: str = "c1", **args) -> bytes:
    call = {"shellToolCall": {"args": {"command": "ls", **args}}}
    return line("tool_call", subtype="started", call_id=call_id, tool_call=call)


def query(query_id: int = 7) -> bytes:
    asked = {"id": query_id, "askQuestionInteractionQuery": {"args": {}}}
    return line(
        "interaction_query",
        subtype="request",
        query_type="askQuestionInteractionQuery",
        query=asked,
    )


class Pipe:
    """A pipe without a bound; ``close`` is its end of file."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._closed = False
        self._changed = trio.Event()

    def write(self, data: bytes) -> None:
        self._data += data
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    @property
    def unread(self) -> int:
        return len(self._data)

    async def read(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._data and not self._closed:
            await self._changed.wait()
        data = bytes(self._data[:max_bytes])
        del self._data[:max_bytes]
        return data


class ScriptedProcess:
    """``stop_takes`` seconds pass between a stop request and the report; inf is never."""

    def __init__(self, spec: LaunchSpec | None = None, pid: int = 4242) -> None:
        self.spec = spec
        self.pid = pid
        self.start_ticks = 2 * pid
        self.guard_pid = pid + 1
        self.guard_start = 2 * pid + 1
        self.stop_takes = 0.0
        self.stop_report: dict = {}
        self.pipes_outlive_exit = False
        self.asked_to_stop = trio.Event()
        self.closed = trio.Event()
        self.ends = 0
        self._stdout = Pipe()
        self._stderr = Pipe()
        self._report: Report | None = None
        self._reported = trio.Event()

    def say(self, *data: bytes) -> None:
        self._stdout.write(b"".join(data))

    def complain(self, data: bytes) -> None:
        self._stderr.write(data)

    @property
    def unread(self) -> int:
        return self._stdout.unread

    def exit(self, exit_code: int | None = 0, *, killed: bool = False, **facts) -> None:
        """The tree has ended, and with it the pipes unless somebody else holds them."""
        if self._report is not None:
            return
        self._report = Report(
            exit_code=exit_code,
            killed=killed,
            processes_ended=facts.pop("processes_ended", 0),
            survivors=facts.pop("survivors", ()),
            elapsed_ms=1.23456,
            cpu_seconds=0.123456,
            max_rss_bytes=1024,
            rung="subreaper",
            **facts,
        )
        if not self.pipes_outlive_exit:
            self.close_pipes()
        self._reported.set()

    def close_pipes(self) -> None:
        self._stdout.close()
        self._stderr.close()

    async def read_stdout(self, max_bytes: int) -> bytes:
        return await self._stdout.read(max_bytes)

    async def read_stderr(self, max_bytes: int) -> bytes:
        return await self._stderr.read(max_bytes)

    async def wait_report(self) -> Report:
        await self._reported.wait()
        assert self._report is not None
        return self._report

    def request_stop(self) -> None:
        self.asked_to_stop.set()

    async def end(self) -> Report:
        self.ends += 1
        with trio.CancelScope(shield=True):
            self.request_stop()
            with trio.move_on_after(self.stop_takes):
                return await self.wait_report()
            self.exit(-15, killed=True, **self.stop_report)
            return await self.wait_report()

    async def aclose(self) -> None:
        assert not self.closed.is_set(), "closed twice"
        self.closed.set()
        await trio.lowlevel.checkpoint()


class ScriptedLauncher:
    """``play`` is called with each process as it is launched."""

    rung = "subreaper"

    def __init__(self, play: Callable[[ScriptedProcess], None] | None = None) -> None:
        self.play = play
        self.fails: list[SpawnFailed] = []
        self.gate: trio.Event | None = None
        self.launching = trio.Event()
        self.launched: list[ScriptedProcess] = []
        self._arrived, self._arrivals = trio.open_memory_channel[ScriptedProcess](1000)

    async def launch(self, spec: LaunchSpec) -> ScriptedProcess:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.launching.set()
        with trio.CancelScope(shield=True):
            if self.gate is not None:
                await self.gate.wait()
        if self.fails:
            raise self.fails.pop(0)
        process = ScriptedProcess(spec, pid=4242 + 10 * len(self.launched))
        self.launched.append(process)
        if self.play is not None:
            self.play(process)
        self._arrived.send_nowait(process)
        return process

    async def next(self) -> ScriptedProcess:
        """The next process that was launched; the test fails if there is none in time."""
        with trio.fail_after(1000):
            return await self._arrivals.receive()

    @property
    def all_closed(self) -> bool:
        return all(process.closed.is_set() for process in self.launched)


async def settle() -> None:
    """Let everything run until it waits for something that only the test can do."""
    await trio.testing.wait_all_tasks_blocked()
