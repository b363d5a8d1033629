"""A house of chats over a real store and scripted processes, for as many lives as a test wants."""

import contextlib
import pathlib
from collections.abc import AsyncIterator

import msgspec
import trio
from attrs import evolve
from scripted_differ import ScriptedDiffer
from scripted_guard import ScriptedLauncher, ScriptedProcess, settle

from agentsdock import config
from agentsdock.backends import prompt_envelope
from agentsdock.backends.protocol import Admitted, Command, Diagnostic
from agentsdock.chats import recovery
from agentsdock.chats.admission import Admission
from agentsdock.chats.authority import Authorities
from agentsdock.chats.chats import Chats
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.draining import Drainer
from agentsdock.chats.launching import Launcher
from agentsdock.chats.library import Library
from agentsdock.chats.queue import Queue
from agentsdock.chats.registry import Registry
from agentsdock.chats.sessions import Sessions
from agentsdock.chats.stopping import Stopper
from agentsdock.files.storage import Storage
from agentsdock.guard.sweep import SweepResult
from agentsdock.model.errors import PromptTooLarge, Unavailable
from agentsdock.model.requests import CreateSession, EditQueued, Idempotency, PostTurn, ReadPage
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import StoreFull
from agentsdock.store.sqlite import open_store, run_inline
from agentsdock.streams.cursor import CursorParser

PROMPT_LIMIT = 2000
TERMINALS = ("turn_finished", "turn_stopped")


class StubBackend:
    """A CLI that any prompt of at most PROMPT_LIMIT characters fits."""

    name = "cursor"
    forks = False
    usage_is_total = False

    def __init__(self) -> None:
        self.prompts = []
        self.bug: Exception | None = None

    def parser(self, spec):
        return CursorParser(spec)

    def check_prompt(self, prompt, files=()):
        if len(prompt) > PROMPT_LIMIT:
            raise PromptTooLarge("too large", size=len(prompt), limit=PROMPT_LIMIT)

    def compose(self, session, prompt, files=(), helpers=""):
        if self.bug is not None:
            raise self.bug
        return prompt_envelope.compose(session, self.name, prompt)

    def command(self, admitted, session, envelope, context):
        if len(envelope.prompt) > 2 * PROMPT_LIMIT:
            raise PromptTooLarge("too large", size=len(envelope.prompt), limit=2 * PROMPT_LIMIT)
        self.prompts.append(envelope.prompt)
        resume = session.binding(self.name).session_id
        tail = ("--resume", resume) if resume else ()
        return Command(("/bin/agent", envelope.prompt, *tail), ("agent", "<prompt>", *tail), {})


class StubRuntimes:
    """``trouble`` keeps every turn from starting; ``gate`` makes admissions wait."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.gate: trio.Event | None = None
        self.admitting = trio.Event()
        self.told = []

    def diagnostic(self, name):
        return Diagnostic(name)

    async def admit(self, name):
        self.admitting.set()
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.trouble is not None:
            raise Unavailable(self.trouble, code="runtime_unavailable")
        return Admitted(name, "/bin/agent", "1.2.3")

    async def check(self, name, *, refresh=False):
        await trio.lowlevel.checkpoint()

    def record_success(self, name):
        self.told.append("success")

    def record_missing(self, name):
        self.told.append("missing")

    async def record_failure(self, name, message, *, auth_suspect=False):
        await trio.lowlevel.checkpoint()
        self.told.append(("failure", auth_suspect))


class NoManifest:
    async def prepare(self):
        await trio.lowlevel.checkpoint()

    async def follow(self, over):
        await over.wait()

    def leave(self):
        pass


class FullDisk:
    """While ``full``, a store refuses every write."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.refused = 0

    def put_under(self, store) -> None:
        for name in ("append", "claim", "renew", "finish"):
            setattr(store, name, self._refusing(getattr(store, name)))

    def _refusing(self, write):
        async def attempt(*unit):
            if self.full:
                self.refused += 1
                await trio.lowlevel.checkpoint()
                raise StoreFull("no space")
            return await write(*unit)

        return attempt


class House:
    """One life of the server."""

    def __init__(self, settings, store, nursery, launcher, runtimes) -> None:
        self.settings = settings
        self.store = store
        self.nursery = nursery
        self.launcher = launcher
        self.runtimes = runtimes
        self.backend = StubBackend()
        self.differs = []
        self.next_diff: dict = {}
        self.feed = Feed(store)
        self.registry = Registry(store, self.feed)
        backends = {"cursor": self.backend}
        storage = Storage.of(settings.state_dir)
        self.library = Library(settings, store, self.registry, storage, nursery)
        self.authorities = Authorities(settings.state_dir / "authority", "identity")
        self.authorities.secure()
        launching = Launcher(
            settings,
            store,
            runtimes,
            backends,
            "identity",
            "instance",
            "http://127.0.0.1:1",
            self.library.attached,
            self.authorities,
        )
        self.dispatcher = Dispatcher(
            self.registry,
            settings,
            runtimes,
            launching,
            launcher,
            self._differ,
            lambda grant: NoManifest(),
            nursery,
        )
        self.drainer = Drainer(self.registry, settings, self.dispatcher, nursery)
        self.stopper = Stopper(self.registry, self.dispatcher, nursery)
        admission = Admission(
            self.registry,
            self.dispatcher,
            lambda _, text, files: self.measure(text),
            self.library.attached,
        )
        self.chats = Chats(
            settings,
            store,
            self.registry,
            self.dispatcher,
            self.stopper,
            Sessions(self.registry, self.dispatcher, self.stopper, settings, self.library),
            admission,
            nursery,
        )
        self.queue = Queue(self.registry, self.dispatcher, admission, nursery)

    def _differ(self, run_id):
        differ = ScriptedDiffer(run_id)
        vars(differ).update(self.next_diff)
        self.differs.append(differ)
        return differ

    def measure(self, text):
        self.backend.check_prompt(text)

    async def open(self) -> None:
        loaded = await self.store.load()
        self.registry.fill(loaded)
        await recovery.recover(self.registry, loaded, "identity", self.nursery)
        self.nursery.start_soon(self.drainer.keep_draining)

    # What clients do.

    async def new(self, **fields) -> str:
        session = await self.chats.create(CreateSession(**{"backend": "cursor", **fields}))
        return session["id"]

    async def post(self, chat: str, prompt: str = "do it", key: str | None = None, **fields):
        asked = None
        if key is not None:
            scope = f"POST /api/sessions/{chat}/turns"
            asked = Idempotency(scope, key, repr((prompt, fields)))
        body = await self.chats.post_turn(chat, PostTurn(prompt, **fields), asked)
        return msgspec.json.decode(body)

    async def edit(self, chat: str, row: str, **fields) -> dict:
        return await self.queue.edit(chat, row, EditQueued(**fields))

    async def run_now(self, chat: str, row: str, *, accept_deferred: bool = False) -> dict:
        return await self.queue.run_now(chat, row, accept_deferred=accept_deferred)

    async def stop(self, chat: str) -> dict:
        with trio.fail_after(1000):
            return await self.chats.stop(chat)

    async def events(self, chat: str) -> list[dict]:
        """The whole timeline; its sequence numbers are checked."""
        found = []
        while rows := await self.store.read_from(chat, len(found)):
            found += [row.decode() for row in rows]
        assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
        return found

    async def types(self, chat: str) -> list[str]:
        return [event["type"] for event in await self.events(chat)]

    async def of_type(self, chat: str, *types: str) -> list[dict]:
        return [event for event in await self.events(chat) if event["type"] in types]

    async def page(self, chat: str, **fields) -> dict:
        return msgspec.json.decode(await self.chats.page(chat, ReadPage(**fields)))

    async def rows(self, chat: str) -> list[dict]:
        return (await self.page(chat))["queued_turns"]

    async def terminal(self, chat: str, run_id: str | None = None) -> dict:
        """The (last) terminal event of a chat, once what runs there has ended."""
        live = self.registry.require(chat).live
        if live is not None:
            with trio.fail_after(100_000):
                await live.ended.wait()
        found = await self.of_type(chat, *TERMINALS)
        return [event for event in found if run_id in (None, event["run_id"])][-1]

    async def play(self, chat: str, *data: bytes, exit_code: int = 0, prompt="do it") -> dict:
        """Post a message that is started at once, play its CLI, and wait for the end."""
        posted = await self.post(chat, prompt)
        process = await self.launcher.next()
        process.say(*data)
        process.exit(exit_code)
        return await self.terminal(chat, posted["run_id"])

    def session(self, chat: str):
        return self.registry.require(chat).session


def make_settings(folder: pathlib.Path, **changes):
    environ = {
        "AGENTSDOCK_STATE_DIR": str(folder / "state"),
        "AGENTSDOCK_AGENT_CWD": str(folder),
        "AGENTSDOCK_MIN_START_AVAILABLE_MEM_MB": "0",
        "AGENTSDOCK_CAPSULE_MAX_BYTES": "0",
    }
    return evolve(config.load(environ), **changes)


async def _nothing_left(records, *, marker_prefix):
    await trio.lowlevel.checkpoint()
    return SweepResult((), ())


@contextlib.asynccontextmanager
async def living(
    folder, *, launcher=None, runtimes=None, disk=None, **changes
) -> AsyncIterator[House]:
    """A life of the server; it ends as by SIGKILL unless the test shuts it down."""
    settings = make_settings(folder, **changes)
    before, recovery.sweep = recovery.sweep, _nothing_left
    try:
        async with (
            open_store(settings.state_dir, run_blocking=run_inline) as store,
            trio.open_nursery() as nursery,
        ):
            # No test here pulls the plug, and syncing is most of what they would wait for.
            await store._in_writer(lambda db: db.pragma("synchronous", 0), abandon=False)
            if disk is not None:
                disk.put_under(store)
            house = House(
                settings, store, nursery, launcher or ScriptedLauncher(), runtimes or StubRuntimes()
            )
            await house.open()
            yield house
            nursery.cancel_scope.cancel()
    finally:
        recovery.sweep = before


def finishing(*data: bytes, exit_code: int = 0):
    """How to play CLIs that all do the same."""

    def play(process: ScriptedProcess) -> None:
        process.say(*data)
        process.exit(exit_code)

    return play


__all__ = ["House", "finishing", "living", "make_settings", "settle"]
