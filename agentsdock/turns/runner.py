"""A turn as a nursery: the guarded process, its readers and its clocks as sibling tasks.

Whatever ends the turn sets the machine's verdict and cancels one scope.  Success and failure
leave by the same teardown, which ends when the guard has proven the tree empty or the bounded
time is over.  Only then are there final events.
"""

import errno
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import trio
from attrs import define, field, frozen

from agentsdock.guard.contract import (
    GuardedProcess,
    Launcher,
    LaunchSpec,
    Report,
    SpawnFailed,
)
from agentsdock.logs import Log, where
from agentsdock.model.codes import Code
from agentsdock.model.events import Draft
from agentsdock.model.limits import TurnLimits
from agentsdock.store.protocol import SessionGone, StoreError, StoreFull
from agentsdock.turns.capsule import CapsuleWriter
from agentsdock.turns.clocks import Clocks, Limit
from agentsdock.turns.machine import TurnMachine
from agentsdock.turns.outbox import Outbox
from agentsdock.turns.verdicts import StopReason, TurnEnd

READ_BYTES = 256 * 1024
STDERR_READ_BYTES = 64 * 1024
HURRIED_DIFF_SECONDS = 5.0
"""What a diff may take of a turn that somebody wants to be over."""
END_SECONDS = 2.0
"""What ``GuardedProcess.end`` may take beyond its two graces, and as much again for us."""


class Recorder(Protocol):
    """Where a turn's events and its state become durable."""

    async def record(self, drafts: Sequence[Draft]) -> None: ...

    async def handed_over(self, process: GuardedProcess) -> None: ...

    async def acknowledged(self) -> None: ...


class Differ(Protocol):
    """Tells what a turn changed.  Its methods raise nothing but a cancellation."""

    missing: str | None
    """Why it cannot be told, once that is known."""

    async def before(self, folder: str) -> None:
        """Note the state of the folder's work tree, within a short bounded time."""
        ...

    async def after(self, edited: Sequence[str]) -> Mapping[str, Any] | None:
        """What became of the files that the agent's edit tools named: fields of ``code_diff``.

        None if nothing did, or where ``missing`` says why it is not known.
        """
        ...


@frozen
class TurnJob:
    """What to run and by which limits.  ``shown_argv`` is what clients may see of it.

    Without a ``spec`` nothing is launched: the runner was failed before it ran.
    """

    spec: LaunchSpec | None
    shown_argv: tuple[str, ...]
    limits: TurnLimits


@define
class _Tail:
    """The last bytes of stderr, and how many there were."""

    limit: int
    total: int = 0
    _kept: bytearray = field(factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._kept += data
        if len(self._kept) > 2 * self.limit:
            del self._kept[: -self.limit]

    def text(self) -> str:
        return bytes(self._kept[-self.limit :]).decode("utf-8", "replace")


class _PatientRead:
    """Waits for bytes as long as it takes; once the tree is gone, only a moment in all.

    End of file follows the end of the tree, unless somebody else holds the pipe, and that must
    not hold the turn.  Time in which the store makes the reader wait does not count.
    """

    def __init__(self, drain_seconds: float) -> None:
        self._drain_seconds = drain_seconds
        self._patience = math.inf
        self._scope = trio.CancelScope()

    def hurry(self) -> None:
        self._patience = self._drain_seconds
        self._scope.deadline = trio.current_time() + self._drain_seconds

    async def take(self, read: Callable[[int], Awaitable[bytes]]) -> bytes:
        """The next bytes; none at the end of file or of the patience."""
        with trio.CancelScope(deadline=trio.current_time() + self._patience) as self._scope:
            data = await read(READ_BYTES)
            self._patience = self._scope.deadline - trio.current_time()
            return data
        return b""


class TurnRunner:
    """Runs one turn once.  ``stop``, ``shut_down`` and ``extend`` may come at any time."""

    def __init__(
        self,
        job: TurnJob,
        machine: TurnMachine,
        launcher: Launcher,
        recorder: Recorder,
        differ: Differ,
        *,
        capsule: CapsuleWriter | None,
        pace: trio.Semaphore | None,
        log: Log,
    ) -> None:
        self._job = job
        self._machine = machine
        self._launcher = launcher
        self._recorder = recorder
        self._differ = differ
        self._capsule = capsule
        self._pace = pace
        self._log = log
        self._scope = trio.CancelScope()
        self._comparing = trio.CancelScope()
        self._outbox = Outbox()
        self._stderr = _Tail(job.limits.stderr_tail_bytes)
        self._stdout_wait = _PatientRead(job.limits.drain_seconds)
        self._drained = trio.Event()
        self._store_failed = False
        self._timekeeping = trio.CancelScope()
        self._clocks_changed = trio.Event()
        self._clocks: Clocks | None = None
        self._began = 0.0
        self._ended_at = 0.0
        self._armed_until = 0.0
        self._startup_ms: float | None = None
        self._report: Report | None = None

    @property
    def machine(self) -> TurnMachine:
        return self._machine

    def stop(self, reason: StopReason, **meta: str) -> None:
        self._machine.stop(reason, **meta)
        self._scope.cancel()
        if reason is StopReason.DELETED:
            self._comparing.cancel()
        self._hurry()

    def shut_down(self) -> None:
        self._machine.shutdown()
        self._scope.cancel()
        self._hurry()

    def fail(self, code: Code, message: str) -> None:
        self._machine.fail(code, message)
        self._scope.cancel()

    def extend(self, seconds: float, clock: Limit | None) -> tuple[float, float] | None:
        """Grant time; seconds left until the idle and the turn deadline.

        None while no clock runs: before there is a process, and once the end is decided.
        """
        if self._clocks is None or self._report is not None or self._machine.decided:
            return None
        self._clocks.extend(seconds, clock)
        now = trio.current_time()
        return self._clocks.idle_deadline - now, self._clocks.turn_deadline - now

    async def run(self) -> list[Draft]:
        """Run to the end; the final events, which the caller commits as one unit."""
        self._began = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._outbox.deliver, self._record)
                try:
                    await self._process()
                except* Exception as group:
                    self._bug(group)
                finally:
                    self._outbox.close()
        except* Exception as group:
            self._bug(group)
        diff = await self._diff()
        return self._machine.finish(
            TurnEnd(
                report=self._report,
                stderr_tail=self._stderr.text(),
                stderr_bytes=self._stderr.total,
                wall_seconds=trio.current_time() - self._began,
                startup_ms=self._startup_ms,
                diff=diff,
                no_diff=self._differ.missing if self._machine.edited else None,
            )
        )

    def _hurry(self) -> None:
        """Somebody wants the turn to be over."""
        soon = trio.current_time() + HURRIED_DIFF_SECONDS
        self._comparing.deadline = min(self._comparing.deadline, soon)

    async def _diff(self) -> Mapping[str, Any] | None:
        """What the agent's edit tools changed.  Nothing of it can fail the turn."""
        edited = self._machine.edited
        if edited:
            with self._comparing:
                return await self._differ.after(edited)
        return None

    def _bug(self, group: BaseExceptionGroup) -> None:
        leaf: BaseException = group
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        self._log.error("turn failed by a bug of ours", error=where(leaf))
        self._machine.fail(Code.INTERNAL_ERROR, f"{type(leaf).__name__} in the turn's runner")

    async def _record(self, drafts: Sequence[Draft]) -> None:
        """Record a batch; once the store cannot, the turn ends and nothing more is recorded."""
        if self._store_failed:
            return
        try:
            await self._recorder.record(drafts)
        except StoreError as error:
            self._store_failed = True
            match error:
                case StoreFull():
                    self.fail(Code.STORAGE_FULL, "The state directory has no space left.")
                case SessionGone():
                    self.stop(StopReason.DELETED)
                case _:
                    self.fail(Code.INTERNAL_ERROR, f"The event store failed: {error}")

    async def _process(self) -> None:
        process: GuardedProcess | None = None
        try:
            with self._scope:
                if self._job.spec is not None:
                    await self._differ.before(self._job.spec.cwd)
                    process = await self._launch(self._job.spec)
                    if process is not None:
                        await self._live(process, self._job.spec.cwd)
        finally:
            if process is not None:
                await self._tear_down(process)

    async def _launch(self, spec: LaunchSpec) -> GuardedProcess | None:
        if self._pace is not None:
            await self._pace.acquire()
        try:
            return await self._launcher.launch(spec)
        except SpawnFailed as error:
            self._release_pace()
            code = {
                errno.E2BIG: Code.PROMPT_TOO_LARGE,
                errno.ENOENT: Code.RUNTIME_UNAVAILABLE,
            }.get(error.errno or 0, Code.SPAWN_FAILED)
            self.fail(code, str(error))
            return None
        except BaseException:
            self._release_pace()
            raise

    def _release_pace(self) -> None:
        """Let the next CLI start: this one speaks, or never will."""
        if self._pace is not None:
            self._pace.release()
            self._pace = None

    async def _live(self, process: GuardedProcess, cwd: str) -> None:
        self._clocks = Clocks(self._job.limits, trio.current_time())
        self._outbox.put(self._machine.spawned(self._job.shown_argv, cwd))
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._recorder.handed_over, process)
            tasks.start_soon(self._keep_time, self._clocks)
            tasks.start_soon(self._read_stderr, process)
            tasks.start_soon(self._read_stdout, process, self._clocks, tasks)
            self._exited(await process.wait_report())
            self._timekeeping.cancel()
            self._stdout_wait.hurry()
            await self._drained.wait()
            self._outbox.put(self._machine.stdout_ended())
            tasks.cancel_scope.cancel()

    def _exited(self, report: Report) -> None:
        self._report = report
        self._ended_at = trio.current_time()
        self._outbox.put(self._machine.exited(report.exit_code, report.killed))

    async def _read_stdout(
        self, process: GuardedProcess, clocks: Clocks, tasks: trio.Nursery
    ) -> None:
        machine = self._machine
        while data := await self._stdout_wait.take(process.read_stdout):
            self._release_pace()
            if self._capsule is not None:
                self._capsule.stdout(data)
            self._outbox.put(machine.feed(data), len(data))
            now = trio.current_time()
            clocks.follow(machine.progress, now)
            if clocks.next_wake() < self._armed_until:
                self._clocks_changed.set()
            if self._startup_ms is None and machine.session_id is not None:
                self._startup_ms = (now - self._began) * 1000
                tasks.start_soon(self._recorder.acknowledged)
            if machine.decided:
                self._scope.cancel()
            await self._outbox.room()
        self._drained.set()

    async def _read_stderr(self, process: GuardedProcess) -> None:
        while data := await process.read_stderr(STDERR_READ_BYTES):
            self._stderr.add(data)

    async def _keep_time(self, clocks: Clocks) -> None:
        """Until a limit is reached, or the CLI has gone and none counts any more."""
        with self._timekeeping:
            while not self._machine.decided:
                self._clocks_changed = trio.Event()
                self._armed_until = clocks.next_wake()
                with trio.move_on_at(self._armed_until):
                    await self._clocks_changed.wait()
                match clocks.check(trio.current_time()):
                    case None:
                        continue
                    case Limit() as limit:
                        budget = clocks.budget(limit)
                        self._outbox.put(self._machine.limit(limit, budget))
                    case warning:
                        self._outbox.put(self._machine.warn_idle(warning))
            self._scope.cancel()

    async def _tear_down(self, process: GuardedProcess) -> None:
        """The one way out: end the tree, hear the guard's proof, keep what stderr still said."""
        self._release_pace()
        limits = self._job.limits
        ending = limits.stop_grace_seconds + limits.teardown_grace_seconds + END_SECONDS
        bound = ending + limits.drain_seconds
        with trio.move_on_after(bound, shield=True):
            try:
                async with trio.open_nursery() as pipes:
                    pipes.start_soon(self._read_stderr, process)
                    if self._report is None:
                        await self._end(process)
                    pipes.cancel_scope.deadline = self._ended_at + limits.drain_seconds
            finally:
                await process.aclose()
        if self._capsule is not None:
            verdict = self._machine.verdict
            code = verdict.code if verdict is not None else None
            self._capsule.close(self._report, self._stderr.text(), code)

    async def _end(self, process: GuardedProcess) -> None:
        """End the tree while somebody empties stdout: a CLI that must write can still leave."""
        async with trio.open_nursery() as draining:
            draining.start_soon(_discard, process)
            self._exited(await process.end())
            draining.cancel_scope.cancel()


async def _discard(process: GuardedProcess) -> None:
    while await process.read_stdout(READ_BYTES):
        pass
