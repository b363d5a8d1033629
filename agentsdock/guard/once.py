"""A short command under a guard, run to its end: what it wrote and how it left."""

import secrets
from collections.abc import Awaitable, Callable

import trio
from attrs import frozen

from agentsdock.guard.contract import LaunchSpec
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.guard.wire import READ_BYTES


@frozen
class Completed:
    """``exit_code`` is None if the time was over first; the outputs are cut at the bound.

    ``stdout_bytes`` is how much there was in all.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    stdout_bytes: int


class _Output:
    """The head of what a command wrote, and how much there was."""

    def __init__(self, limit: int) -> None:
        self.kept = bytearray()
        self.total = 0
        self._limit = limit

    async def collect(self, read: Callable[[int], Awaitable[bytes]]) -> None:
        while data := await read(READ_BYTES):
            self.kept += data[: self._limit - len(self.kept)]
            self.total += len(data)


async def run_once(
    launcher: ZygoteLauncher,
    argv: tuple[str, ...],
    env: dict[str, str],
    cwd: str,
    timeout: float,
    max_output: int = 1 << 20,
    stdin: bytes | None = None,
) -> Completed:
    """Run a short command to its end under a guard; ``stdin`` is all that it can read.

    At the timeout (seconds) its tree is killed.  ``max_output`` bounds each of the outputs, in
    bytes; the rest is read and dropped.  Raises SpawnFailed.
    """
    marker = f"{launcher.identity}:once-{secrets.token_hex(8)}"
    spec = LaunchSpec(argv, env, cwd, marker, stdin, grace=0.0, background=False)
    stdout, stderr = _Output(max_output), _Output(max_output)
    process = await launcher.launch(spec)

    try:
        with trio.move_on_after(timeout) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stdout.collect, process.read_stdout)
                nursery.start_soon(stderr.collect, process.read_stderr)
            report = await process.wait_report()
    finally:
        report = await process.end()
        await process.aclose()
    timed_out = scope.cancelled_caught
    return Completed(
        None if timed_out else report.exit_code,
        bytes(stdout.kept),
        bytes(stderr.kept),
        timed_out,
        stdout.total,
    )
