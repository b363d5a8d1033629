"""Who may run what, when: starts turns, runs them, stops them, and drains the queues."""

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from attrs import evolve

from agentsdock.backends.probing import Runtimes
from agentsdock.chats.capsules import CapsuleKeeper, capsule_path
from agentsdock.chats.chat import Chat, paused
from agentsdock.chats.launching import Launch, Launcher
from agentsdock.chats.live import LiveTurn, broken_ending
from agentsdock.chats.pressure import MEMORY_POLL_SECONDS, reason_to_wait
from agentsdock.chats.recorder import TurnRecorder
from agentsdock.chats.registry import Registry, encoded
from agentsdock.chats.tasks import contained, start_clean
from agentsdock.config import Settings
from agentsdock.guard.contract import Launcher as ProcessLauncher
from agentsdock.logs import get_logger, where
from agentsdock.model.codes import Code
from agentsdock.model.errors import DockError, Unavailable
from agentsdock.model.events import Committed, Draft, Encoded
from agentsdock.model.turns import QueuedTurn, Run
from agentsdock.store.protocol import (
    Change,
    DropQueued,
    PutQueued,
    RunClosed,
    SessionGone,
    StoreClosed,
    StoreError,
)
from agentsdock.turns.capsule import CapsuleWriter
from agentsdock.turns.diagnosis import Kind
from agentsdock.turns.drift import DriftRadar
from agentsdock.turns.runner import TurnRunner
from agentsdock.turns.verdicts import StopReason

STOP_SECONDS = 90.0
RETRY_WRITE_SECONDS = 5.0
log = get_logger()


class Dispatcher:
    """Owns the live turns.  Every method that takes a chat wants its lock held, but ``stop``."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        runtimes: Runtimes,
        launcher: Launcher,
        processes: ProcessLauncher,
        nursery: trio.Nursery,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._runtimes = runtimes
        self._launcher = launcher
        self._processes = processes
        self._nursery = nursery
        self.drift = DriftRadar()
        self.capsules = CapsuleKeeper(settings, self._live_runs)
        self._pace = trio.Semaphore(settings.launch_pace) if settings.launch_pace else None
        self._slots = 0
        self._closing = trio.Event()
        self._held: str | None = None
        """Why rows wait that could start but for the pressure."""
        self._wake = trio.Event()

    def _live_runs(self) -> set[str]:
        return {chat.live.run.id for chat in self._registry if chat.live is not None}

    @property
    def rung(self) -> str:
        """By which means trees are ended here."""
        return self._processes.rung

    # -- starting

    def pressure(self) -> str | None:
        """Why a turn has to wait; raises Unavailable while the server goes down.

        Where others wait for a place already, a new turn does not overtake them.
        """
        if self._closing.is_set():
            raise _going_down()
        return reason_to_wait(self._settings, self._slots) or self._held

    async def start(
        self,
        chat: Chat,
        turn: QueuedTurn,
        *,
        queued: bool,
        changes: Callable[[Run], Sequence[Change]] = lambda run: (),
    ) -> Committed:
        """Claim the turn and run it in the background; its ``turn_started``.

        ``changes`` are made durable with the claim.  Raises DockError (nothing happened) and
        StoreError.
        """
        self._slots += 1
        try:
            launch = await self._launcher.prepare(
                chat.session, turn, turn.queued_id if queued else None
            )
            if self._closing.is_set():
                raise _going_down()
            live = self._live_turn(chat, launch)
            events = encoded(chat, launch.first_events)
            async with self._registry.changing(chat, lambda _: launch.session) as put:
                dropped = [DropQueued(turn.queued_id)] if queued else []
                unit = [put, *dropped, *changes(launch.run)]
                committed = await self._registry.store.claim(launch.run, events, unit)
        except BaseException:
            self._free_slot()
            raise
        chat.drop_row(turn.queued_id)
        chat.live = live
        if self._closing.is_set():
            live.runner.shut_down()
        start_clean(self._nursery, self._run, chat, live)
        return committed[0]

    def _live_turn(self, chat: Chat, launch: Launch) -> LiveTurn:
        recorder = TurnRecorder(self._registry, chat, launch.run)
        runner = TurnRunner(
            launch.job,
            launch.machine,
            self._processes,
            recorder,
            capsule=self._capsule(launch),
            pace=self._pace,
            log=log.bind(chat=chat.id, run=launch.run.id),
        )
        if launch.refusal is not None:
            runner.fail(Code.PROMPT_TOO_LARGE, launch.refusal.message)
        return LiveTurn(runner, launch.envelope, recorder, launch.version)

    def _capsule(self, launch: Launch) -> CapsuleWriter | None:
        if launch.job.spec is None or not self._settings.capsule_bytes:
            return None
        return CapsuleWriter(
            capsule_path(self._settings.state_dir, launch.run.id),
            backend=launch.run.backend,
            version=launch.version,
            argv=launch.job.shown_argv,
            resume_id=launch.machine.turn.resume_id,
            max_bytes=self._settings.capsule_bytes,
        )

    def _free_slot(self) -> None:
        self._slots -= 1
        self.wake()

    # -- running

    async def _run(self, chat: Chat, live: LiveTurn) -> None:
        turn_log = log.bind(chat=chat.id, run=live.run.id)
        turn_log.info("turn started", backend=live.run.backend)
        try:
            with contained("turn end not written", chat=chat.id, run=live.run.id):
                await self._finish(chat, live, await self._ending(chat, live))
        finally:
            chat.live = None
            self._free_slot()
            live.ended.set()
            self.capsules.wake()
            self.drift.add(live.run.backend, live.version, live.runner.machine.drift)
        terminal = live.terminal or {}
        turn_log.info(
            "turn ended",
            code=terminal.get("code"),
            tree_empty=terminal.get("tree_empty"),
            seconds=terminal.get("wall_seconds"),
        )
        with contained("runtime not told of a turn", run=live.run.id):
            await self._tell_runtime(live, terminal)
            await self._runtimes.check(live.run.backend)

    async def _ending(self, chat: Chat, live: LiveTurn) -> list[Encoded]:
        """The final events.  A bug in one turn must not end another, nor leave this one open."""
        try:
            drafts = await live.runner.run()
            events = encoded(chat, drafts)
        except Exception as error:
            log.error("turn without an ending", run=live.run.id, error=where(error))
            drafts = broken_ending(live.run, error)
            events = encoded(chat, drafts)
        live.terminal = drafts[-1].payload
        return events

    async def _finish(self, chat: Chat, live: LiveTurn, events: list[Encoded]) -> None:
        """Commit the final events, as often as it takes: a run without its end is a lie.

        Raises StoreError where that cannot come to be: the next server life says it then.
        """
        while True:
            try:
                async with self._registry.changing(chat, live.settled) as put:
                    committed = await self._registry.store.finish(live.run, events, [put])
            except (RunClosed, SessionGone, StoreClosed):
                raise
            except StoreError as error:
                if self._closing.is_set():
                    raise
                log.warning("turn end waits for the store", run=live.run.id, error=str(error))
                await trio.sleep(RETRY_WRITE_SECONDS)
            else:
                live.terminal_seq = committed[-1].seq
                return

    async def _tell_runtime(self, live: LiveTurn, terminal: dict[str, object]) -> None:
        backend = live.run.backend
        if not terminal.get("is_error"):
            if live.runner.machine.succeeded:
                self._runtimes.record_success(backend)
        elif terminal.get("code") == Code.RUNTIME_UNAVAILABLE:
            self._runtimes.record_missing(backend)
        else:
            await self._runtimes.record_failure(
                backend,
                str(terminal.get("message") or ""),
                auth_suspect=terminal.get("diagnosis") == Kind.SIGN_IN,
            )

    # -- queues

    def wake(self) -> None:
        """Something changed that may let a waiting turn start."""
        self._wake.set()

    async def keep_draining(self) -> None:
        """Start waiting turns, the longest waiting first, for as long as the server lives."""
        while not self._closing.is_set():
            self._wake = trio.Event()
            wait = self._start_ready()
            with trio.move_on_after(wait):
                await self._wake.wait()

    def _start_ready(self) -> float:
        """Seconds until there is reason to look again without being woken."""
        wait = math.inf
        now = trio.current_time()
        self._held = None
        ready = [chat for chat in self._registry if not chat.draining and chat.may_start]
        for chat in sorted(ready, key=lambda chat: chat.queue[0].position):
            if chat.retry_at > now:
                wait = min(wait, chat.retry_at - now)
                continue
            self._held = self._held or reason_to_wait(self._settings, self._slots)
            if self._held is None:
                self._slots += 1
                self._drain(chat, self._start_head)
            else:
                wait = min(wait, MEMORY_POLL_SECONDS)
                if not chat.queue[0].deferred:
                    self._drain(chat, partial(self._hold_head, self._held))
        return wait

    def _drain(self, chat: Chat, take_head: Callable[[Chat], Awaitable[None]]) -> None:
        chat.draining = True
        self._nursery.start_soon(self._draining, chat, take_head)

    async def _draining(self, chat: Chat, take_head: Callable[[Chat], Awaitable[None]]) -> None:
        try:
            async with chat.lock:
                await take_head(chat)
        finally:
            chat.draining = False
            self.wake()

    async def _hold_head(self, reason: str, chat: Chat) -> None:
        if chat.may_start:
            await self._defer(chat, chat.queue[0], reason)

    async def _start_head(self, chat: Chat) -> None:
        """Start the head of a queue in the slot that was taken for it."""
        self._slots -= 1
        if self._closing.is_set() or not chat.may_start:
            return
        row = chat.queue[0]
        try:
            await self.start(chat, row, queued=True)
        except (Unavailable, StoreError) as error:
            await self._try_later(chat, row, str(error))
        except DockError as error:
            await self._refuse(chat, row, error)
        except Exception as error:
            log.error("turn could not be started", chat=chat.id, error=where(error))
            await self._try_later(chat, row, "An error in the server kept this turn from starting.")

    async def _try_later(self, chat: Chat, row: QueuedTurn, reason: str) -> None:
        chat.retry_at = trio.current_time() + self._settings.busy_retry_seconds
        await self._defer(chat, row, reason)

    async def _defer(self, chat: Chat, row: QueuedTurn, reason: str) -> None:
        """Say once that a row has to wait, and why."""
        if row.deferred:
            return
        row = evolve(row, deferred=True)
        event = Draft(
            "turn_deferred",
            {"queued_id": row.queued_id, "message": reason, "remaining": len(chat.queue)},
        )
        try:
            await self._registry.write(chat, [event], [PutQueued(row)])
        except StoreError as error:
            log.warning("deferral not written", chat=chat.id, error=str(error))
            chat.retry_at = trio.current_time() + self._settings.busy_retry_seconds
        else:
            chat.replace_row(row)

    async def _refuse(self, chat: Chat, row: QueuedTurn, error: DockError) -> None:
        """The row can never start: say why and take it out, so that it does not come back."""
        remaining = len(chat.queue) - 1
        events = [
            Draft(
                "error",
                {
                    "queued_id": row.queued_id,
                    "backend": chat.session.backend,
                    "code": Code.LAUNCH_REFUSED,
                    "message": error.message,
                },
            ),
            Draft(
                "turn_unqueued",
                {
                    "queued_id": row.queued_id,
                    "reason": "launch_refused",
                    "prompt": row.shown_prompt,
                    "message": error.message,
                    "remaining": remaining,
                },
            ),
        ]
        try:
            await self._registry.write(chat, events, [DropQueued(row.queued_id)])
        except StoreError as failure:
            await self._try_later(chat, row, str(failure))
        else:
            chat.drop_row(row.queued_id)

    # -- stopping

    async def stop(self, chat: Chat, reason: StopReason = StopReason.USER) -> LiveTurn | None:
        """Stop what runs and pause what waits; returns once the terminal event is durable.

        The verdict is set before anything is waited for.  At most STOP_SECONDS for the end.
        Raises StoreError, after the end, where the pause could not be made durable.
        """
        live = self._stop_live(chat, reason)
        try:
            async with chat.lock:
                # A turn that was just being started is meant too.
                live = self._stop_live(chat, reason) or live
                if reason is StopReason.USER and not (live and "job_id" in live.run.meta):
                    await self._pause(chat)
        finally:
            if live is not None:
                with trio.move_on_after(STOP_SECONDS):
                    await live.ended.wait()
        return live

    def _stop_live(self, chat: Chat, reason: StopReason) -> LiveTurn | None:
        if chat.live is not None:
            chat.live.runner.stop(reason)
        return chat.live

    async def _pause(self, chat: Chat) -> None:
        rows = [paused(row, "stopped") for row in chat.queue if not row.paused]
        if not rows:
            return
        event = Draft(
            "turn_queue_paused",
            {
                "queued_ids": [row.queued_id for row in rows],
                "message": "Waiting messages are paused until you run or delete them.",
            },
        )
        await self._registry.write(chat, [event], [PutQueued(row) for row in rows])
        for row in rows:
            chat.replace_row(row)

    async def shut_down(self) -> None:
        """End every turn as a shutdown and wait until each has its terminal event."""
        self._closing.set()
        self.wake()
        # A start that was under way may still add one.
        while living := [chat.live for chat in self._registry if chat.live is not None]:
            for live in living:
                live.runner.shut_down()
            await living[0].ended.wait()


def _going_down() -> Unavailable:
    return Unavailable("the server is shutting down; try again in a moment")
