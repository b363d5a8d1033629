"""Who may run what, when: starts turns, runs them, stops them, and drains the queues."""

import math
from collections.abc import Callable, Sequence

import trio
from attrs import evolve

from agentsdock.backends.probing import Runtimes
from agentsdock.chats import bindings
from agentsdock.chats.chat import Chat, paused
from agentsdock.chats.capsules import CapsuleKeeper, capsule_path
from agentsdock.chats.launching import Launch, Launcher
from agentsdock.chats.live import LiveTurn
from agentsdock.chats.pressure import MEMORY_POLL_SECONDS, reason_to_wait
from agentsdock.chats.recorder import TurnRecorder
from agentsdock.chats.registry import Registry, encoded
from agentsdock.chats.tasks import start_clean
from agentsdock.config import Settings
from agentsdock.guard.contract import Launcher as ProcessLauncher
from agentsdock.logs import get_logger
from agentsdock.model.codes import Code
from agentsdock.model.errors import DockError, Unavailable
from agentsdock.model.events import Committed, Draft
from agentsdock.model.sessions import Session
from agentsdock.model.turns import QueuedTurn, Run
from agentsdock.store.protocol import Change, DropQueued, PutQueued, StoreError
from agentsdock.turns.capsule import CapsuleWriter
from agentsdock.turns.verdicts import StopReason
from agentsdock.turns.diagnosis import Kind
from agentsdock.turns.runner import TurnRunner

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
        self.capsules = CapsuleKeeper(settings, self._live_runs)
        self._pace = trio.Semaphore(settings.launch_pace) if settings.launch_pace else None
        self._slots = 0
        self._closing = False
        self._wake = trio.Event()

    def _live_runs(self) -> set[str]:
        return {chat.live.run.id for chat in self._registry if chat.live is not None}

    # -- starting

    def pressure(self) -> str | None:
        """Why a turn has to wait; raises Unavailable while the server goes down."""
        if self._closing:
            raise Unavailable("the server is shutting down; try again in a moment")
        return reason_to_wait(self._settings, self._slots)

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
            events = encoded(chat, launch.first_events)
            async with self._registry.changing(chat, lambda _: launch.session) as put:
                dropped = [DropQueued(turn.queued_id)] if queued else []
                unit = [put, *dropped, *changes(launch.run)]
                committed = await self._registry.store.claim(launch.run, events, unit)
        except BaseException:
            self._slots -= 1
            raise
        chat.drop_row(turn.queued_id)
        live = self._enliven(chat, launch)
        start_clean(self._nursery, self._run, chat, live)
        return committed[0]

    def _enliven(self, chat: Chat, launch: Launch) -> LiveTurn:
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
        chat.live = LiveTurn(launch.run, runner, launch.envelope, launch.resumed, recorder)
        return chat.live

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

    # -- running

    async def _run(self, chat: Chat, live: LiveTurn) -> None:
        turn_log = log.bind(chat=chat.id, run=live.run.id)
        turn_log.info("turn started", backend=live.run.backend)
        try:
            await self._finish(chat, live, await self._drafts_of(live))
        finally:
            self._slots -= 1
            chat.live = None
            live.ended.set()
            self.wake()
            self.capsules.wake()
        terminal = live.terminal or {}
        turn_log.info(
            "turn ended",
            code=terminal.get("code"),
            tree_empty=terminal.get("tree_empty"),
            seconds=terminal.get("wall_seconds"),
        )
        await self._tell_runtime(live, terminal)
        await self._runtimes.check(live.run.backend)

    async def _drafts_of(self, live: LiveTurn) -> list[Draft]:
        """The final events.  A bug in one turn must not end another, nor leave this one open."""
        try:
            return await live.runner.run()
        except Exception as error:
            log.error("turn without an ending", run=live.run.id, error=repr(error)[:200])
            return broken_ending(live.run, error)

    async def _finish(self, chat: Chat, live: LiveTurn, drafts: list[Draft]) -> None:
        """Commit the final events, as often as it takes: a run without its end is a lie."""
        live.terminal = drafts[-1].payload
        while True:
            try:
                async with self._registry.changing(
                    chat, lambda session: _settled(session, live)
                ) as put:
                    committed = await self._registry.store.finish(
                        live.run, encoded(chat, drafts), [put]
                    )
            except StoreError as error:
                if chat.gone or self._closing:
                    log.error("turn end not written", run=live.run.id, error=str(error))
                    return
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
        while True:
            self._wake = trio.Event()
            wait = self._start_ready()
            with trio.move_on_after(wait):
                await self._wake.wait()

    def _start_ready(self) -> float:
        """Seconds until there is reason to look again without being woken."""
        wait = math.inf
        now = trio.current_time()
        ready = [chat for chat in self._registry if _ready(chat)]
        if self._closing:
            return wait
        for chat in sorted(ready, key=lambda chat: chat.queue[0].position):
            if chat.retry_at > now:
                wait = min(wait, chat.retry_at - now)
                continue
            reason = reason_to_wait(self._settings, self._slots)
            if reason is None:
                chat.draining = True
                self._slots += 1
                self._nursery.start_soon(self._start_head, chat)
            else:
                wait = min(wait, MEMORY_POLL_SECONDS)
                if not chat.queue[0].deferred:
                    chat.draining = True
                    self._nursery.start_soon(self._hold_head, chat, reason)
        return wait

    async def _hold_head(self, chat: Chat, reason: str) -> None:
        try:
            async with chat.lock:
                if chat.queue and not chat.gone:
                    await self.defer(chat, chat.queue[0], reason)
        finally:
            chat.draining = False

    async def _start_head(self, chat: Chat) -> None:
        """Start the head of a queue; ``_slots`` was already raised for it."""
        try:
            async with chat.lock:
                self._slots -= 1
                chat.draining = False
                if _ready(chat) and not self._closing:
                    await self._try_head(chat, chat.queue[0])
        finally:
            chat.draining = False

    async def _try_head(self, chat: Chat, row: QueuedTurn) -> None:
        try:
            await self.start(chat, row, queued=True)
        except (Unavailable, StoreError) as error:
            chat.retry_at = trio.current_time() + self._settings.busy_retry_seconds
            await self.defer(chat, row, str(error))
            self.wake()
        except DockError as error:
            await self._refuse(chat, row, error)

    async def defer(self, chat: Chat, row: QueuedTurn, reason: str) -> None:
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
            return
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
        await self._registry.write(chat, events, [DropQueued(row.queued_id)])
        chat.drop_row(row.queued_id)
        self.wake()

    # -- stopping

    async def stop(self, chat: Chat, reason: StopReason = StopReason.USER) -> LiveTurn | None:
        """Stop what runs and pause what waits; returns once the terminal event is durable.

        The verdict is set before anything is waited for.  At most STOP_SECONDS.
        """
        async with chat.lock:
            live = chat.live
            if live is not None:
                live.runner.stop(reason)
            if reason is StopReason.USER and not (live and "job_id" in live.run.meta):
                await self._pause(chat)
        if live is not None:
            with trio.move_on_after(STOP_SECONDS):
                await live.ended.wait()
        return live

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
        self._closing = True
        living = [chat.live for chat in self._registry if chat.live is not None]
        for live in living:
            live.runner.shut_down()
        for live in living:
            await live.ended.wait()


def broken_ending(run: Run, error: Exception) -> list[Draft]:
    message = f"{type(error).__name__} in the server; the turn was ended."
    told = {
        "run_id": run.id,
        "backend": run.backend,
        "code": Code.INTERNAL_ERROR,
        "message": message,
        "exit_code": None,
        **run.meta,
    }
    ending = {"result_text": "", "stopped": False, "is_error": True, "tree_empty": None}
    return [Draft("error", told), Draft("turn_finished", {**told, **ending})]


def _ready(chat: Chat) -> bool:
    return bool(
        chat.queue
        and not chat.busy
        and not chat.draining
        and not chat.gone
        and not chat.session.archived
        and not chat.queue[0].paused
    )


def _settled(session: Session, live: LiveTurn) -> Session:
    """The session after the turn: what a success commits, what a failed resume leaves."""
    machine = live.runner.machine
    terminal = live.terminal or {}
    if machine.succeeded:
        return bindings.succeeded(session, live.run.backend, live.envelope)
    mismatch = terminal.get("code") == Code.SESSION_MISMATCH
    if live.resumed and terminal.get("is_error") and (machine.session_id is None or mismatch):
        return bindings.failed_before_init(session, live.run.backend, Code(terminal["code"]))
    return session
