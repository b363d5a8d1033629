"""Starts turns and runs them to their one ending."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import trio

from agentsdock.backends.probing import Runtimes
from agentsdock.chats.authority import Grant
from agentsdock.chats.capsules import CapsuleKeeper, capsule_path
from agentsdock.chats.chat import Chat
from agentsdock.chats.launching import Launch, Launcher
from agentsdock.chats.live import LiveTurn, TurnDiffer, TurnManifest, broken_ending
from agentsdock.chats.pressure import Slots
from agentsdock.chats.recorder import TurnRecorder
from agentsdock.chats.registry import Registry, encoded
from agentsdock.chats.tasks import contained, start_clean
from agentsdock.config import Settings
from agentsdock.guard.contract import Launcher as ProcessLauncher
from agentsdock.logs import get_logger, where
from agentsdock.model.codes import Code
from agentsdock.model.errors import Unavailable
from agentsdock.model.events import Committed, Draft, Encoded
from agentsdock.model.turns import QueuedTurn, Run
from agentsdock.store.protocol import (
    Change,
    DropQueued,
    RunClosed,
    SessionGone,
    StoreClosed,
    StoreError,
)
from agentsdock.turns.capsule import CapsuleWriter
from agentsdock.turns.diagnosis import Kind
from agentsdock.turns.drift import DriftRadar
from agentsdock.turns.runner import TurnRunner
from agentsdock.turns.verdicts import NOT_BY_THE_CLI

RETRY_WRITE_SECONDS = 5.0
log = get_logger()


class Dispatcher:
    """Owns the live turns and their slots.  Who starts one holds the lock of its chat."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        runtimes: Runtimes,
        launcher: Launcher,
        processes: ProcessLauncher,
        differ: Callable[[str], TurnDiffer],
        manifest: Callable[[Grant], TurnManifest],
        nursery: trio.Nursery,
    ) -> None:
        """``differ`` makes that of a run by its id, ``manifest`` that of a run's authority."""
        self._registry = registry
        self._settings = settings
        self._runtimes = runtimes
        self._launcher = launcher
        self._processes = processes
        self._differ = differ
        self._manifest = manifest
        self._nursery = nursery
        self.drift = DriftRadar()
        self.capsules = CapsuleKeeper(settings, self._live_runs)
        self._pace = trio.Semaphore(settings.launch_pace) if settings.launch_pace else None
        self.slots = Slots(settings)
        self._active: dict[str, Chat] = {}
        """Chats in which a turn runs or is being started."""
        self.closing = trio.Event()
        """Set when the server goes down: nothing starts any more."""

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
        self.require_open()
        return self.slots.reason_to_wait() or self.slots.held

    def rival(self, chat: Chat) -> str | None:
        """Why a turn must wait for another chat: two CLIs would write to one session."""
        wanted = chat.session.resumes
        for other in self._active.values():
            if other is not chat and wanted is not None and other.session.resumes == wanted:
                return (
                    f"The chat {other.session.title!r} ({other.id}) is using this chat's "
                    f"{chat.session.backend} session; this turn starts when that one ends."
                )
        return None

    def require_open(self) -> None:
        if self.closing.is_set():
            raise Unavailable("the server is shutting down; try again in a moment")

    async def check(self, chat: Chat, turn: QueuedTurn) -> None:
        """Whether the turn's runtime would take it now.  Raises DockError."""
        await self._launcher.check(chat.session, turn)

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
        self.slots.take()
        self._active[chat.id] = chat
        try:
            launch = await self._launcher.prepare(
                chat.session, turn, turn.queued_id if queued else None
            )
            self.require_open()
            live = self._live_turn(chat, launch)
            events = encoded(chat, launch.first_events)
            async with self._registry.changing(chat, lambda _: launch.session) as put:
                dropped = [DropQueued(turn.queued_id)] if queued else []
                unit = [put, *dropped, *changes(launch.run)]
                committed = await self._registry.store.claim(launch.run, events, unit)
        except BaseException:
            del self._active[chat.id]
            self.slots.free()
            raise
        chat.drop_row(turn.queued_id)
        chat.live = live
        if self.closing.is_set():
            live.shut_down()
        start_clean(self._nursery, self._run, chat, live)
        return committed[0]

    def _live_turn(self, chat: Chat, launch: Launch) -> LiveTurn:
        recorder = TurnRecorder(self._registry, chat, launch.run)
        differ = self._differ(launch.run.id)
        runner = TurnRunner(
            launch.job,
            launch.machine,
            self._processes,
            recorder,
            differ,
            capsule=self._capsule(launch),
            pace=self._pace,
            log=log.bind(chat=chat.id, run=launch.run.id),
        )
        if launch.refusal is not None:
            runner.fail(Code.PROMPT_TOO_LARGE, launch.refusal.message)
        return LiveTurn(
            runner,
            launch.envelope,
            recorder,
            differ,
            launch.grant,
            self._launcher.authorities,
            self._manifest(launch.grant),
            launch.version,
            launch.usage_is_total,
        )

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
            with contained("turn end not written", chat=chat.id, run=live.run.id):
                await self._finish(chat, live, await self._ending(chat, live))
        finally:
            chat.live = None
            del self._active[chat.id]
            self.slots.free()
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
        with contained("snapshot not removed", run=live.run.id):
            await live.differ.close()
        with contained("runtime not told of a turn", run=live.run.id):
            await self._tell_runtime(live, terminal)
            await self._runtimes.check(live.run.backend)

    async def _ending(self, chat: Chat, live: LiveTurn) -> list[Encoded]:
        """The final events.  A bug in one turn must not end another, nor leave this one open."""
        try:
            *before, terminal = await self._played(live)
            drafts = [*before, *live.told_memory(chat.session), terminal]
            events = encoded(chat, drafts)
        except Exception as error:
            log.error("turn without an ending", run=live.run.id, error=where(error))
            drafts = broken_ending(live.run, error)
            events = encoded(chat, drafts)
        live.terminal = drafts[-1].payload
        return events

    async def _played(self, live: LiveTurn) -> list[Draft]:
        """Run the turn, with what it may ask of the server for just as long."""
        authorities = self._launcher.authorities
        try:
            if not self.closing.is_set() and not live.ending:
                with suppress(OSError):  # Then the turn runs without.
                    authorities.grant(live.grant)
                await live.manifest.prepare()
            return await self._followed(live)
        finally:
            authorities.revoke(live.run.id)

    async def _followed(self, live: LiveTurn) -> list[Draft]:
        """Run the turn beside its manifest, whose files come before the turn's end."""
        over = trio.Event()
        drafts: list[Draft] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live.manifest.follow, over)
            try:
                drafts = await live.runner.run()
            finally:
                over.set()
        return drafts

    async def _finish(self, chat: Chat, live: LiveTurn, events: list[Encoded]) -> None:
        """Commit the final events, as often as it takes: a run without its end is a lie.

        Raises StoreError where that cannot come to be: the next server life says it then.
        """
        while True:
            try:
                async with self._registry.changing(chat, live.settled) as put:
                    changes = [put, *live.kept(events)]
                    committed = await self._registry.store.finish(live.run, events, changes)
            except (RunClosed, SessionGone, StoreClosed):
                raise
            except StoreError as error:
                if self.closing.is_set():
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
        elif terminal.get("code") not in NOT_BY_THE_CLI:
            await self._runtimes.record_failure(
                backend,
                str(terminal.get("message") or ""),
                auth_suspect=terminal.get("diagnosis") == Kind.SIGN_IN,
            )
