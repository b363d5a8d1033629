"""The composition root: opens the store, the launcher, the turns and the web, in that order,
and closes them in the reverse."""

import contextlib
import functools
import gc
import json
import os
import pathlib
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence

import trio

from agentsdock import logs
from agentsdock.backends.guarded_probe import GuardedProbe
from agentsdock.backends.probing import Runtimes
from agentsdock.backends.protocol import AttachedFile, Backend
from agentsdock.backends.registry import make_backends
from agentsdock.chats import manifests
from agentsdock.chats.admission import Admission
from agentsdock.chats.authority import FOLDER as AUTHORITY_FOLDER
from agentsdock.chats.authority import Authorities
from agentsdock.chats.chats import Chats
from agentsdock.chats.diffs import Diffs
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.dock import Dock, Identity, identify
from agentsdock.chats.draining import Drainer
from agentsdock.chats.forks import Forks
from agentsdock.chats.imports import Imports
from agentsdock.chats.launching import Launcher
from agentsdock.chats.library import Library
from agentsdock.chats.publishing import Publishing
from agentsdock.chats.queue import Queue
from agentsdock.chats.reading import Reading
from agentsdock.chats.recovery import recover
from agentsdock.chats.registry import Registry
from agentsdock.chats.searching import Searching
from agentsdock.chats.sessions import Sessions
from agentsdock.chats.stopping import Stopper
from agentsdock.config import SettingError, Settings
from agentsdock.files.storage import Storage
from agentsdock.guard.handle import ZygoteLauncher
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import Store
from agentsdock.store.sqlite import open_store
from agentsdock.web.app import make_app
from agentsdock.web.serve import bind, serve

SHUTDOWN_SECONDS = 30.0
"""Longest that turns may take to end and to be recorded once the server goes down."""

log = logs.get_logger()


def main(settings: Settings) -> None:
    """Run the server until SIGTERM or SIGINT."""
    trio.run(run, settings)


async def run(settings: Settings) -> None:
    """Serve until a signal, then leave in order: web, turns, store."""
    stopping = trio.Event()
    listeners = await bind(settings)
    identity = identify(settings.state_dir)
    authorities, storage = _own_folders(settings, identity)
    async with (
        ZygoteLauncher(identity.server) as processes,
        open_store(settings.state_dir) as store,
        trio.open_nursery() as house,
    ):
        house.start_soon(_listen_for_signals, stopping)
        address = listeners.address
        dock = await _open_house(
            settings,
            identity,
            authorities,
            storage,
            store,
            processes,
            house,
            stopping,
            listeners.local_address,
        )
        async with trio.open_nursery() as web:
            await web.start(serve, make_app(dock), listeners, settings, stopping)
            with _written_address(settings.state_dir / "server.json", address):
                log.info("listening", address=address, version=identity.version)
                house.start_soon(_after_start, dock)
                await stopping.wait()
            log.info("shutting down")
            # Beside the web's own end, so that who waits for a turn still gets its answer.
            with trio.move_on_after(SHUTDOWN_SECONDS, shield=True):
                await dock.chats.stopper.shut_down()
        house.cancel_scope.cancel()


async def _open_house(
    settings: Settings,
    identity: Identity,
    authorities: Authorities,
    storage: Storage,
    store: Store,
    processes: ZygoteLauncher,
    house: trio.Nursery,
    stopping: trio.Event,
    address: str,
) -> Dock:
    authorities.purge()
    await trio.to_thread.run_sync(manifests.purge, settings.state_dir)
    feed = Feed(store)
    registry = Registry(store, feed)
    backends = make_backends(settings)
    runtimes = Runtimes(settings, backends, GuardedProbe(processes, settings.cwd))
    library = Library(settings, store, registry, storage, house)
    launcher = Launcher(
        settings,
        store,
        runtimes,
        backends,
        identity.server,
        identity.instance,
        address,
        library.attached,
        authorities,
    )
    diffs = Diffs(settings, store, processes, identity.instance)
    publishing = Publishing(store, registry, library, authorities, house)
    manifest = functools.partial(manifests.Manifest, publishing, settings.state_dir)
    dispatcher = Dispatcher(
        registry, settings, runtimes, launcher, processes, diffs.of_run, manifest, house
    )
    if store.set_aside is not None:
        log.error("damaged database set aside; begun anew", kept_as=store.set_aside.name)
    loaded = await store.load()
    registry.fill(loaded)
    await recover(registry, loaded, identity.server, house)
    house.start_soon(Drainer(registry, settings, dispatcher, house).keep_draining)
    house.start_soon(dispatcher.capsules.keep)
    house.start_soon(diffs.sweep)
    house.start_soon(library.sweep, library.storage.names())
    stopper = Stopper(registry, dispatcher, house)
    admission = Admission(
        registry, dispatcher, functools.partial(_measure, backends), library.attached
    )
    chats = Chats(
        settings,
        store,
        registry,
        dispatcher,
        stopper,
        Sessions(registry, dispatcher, stopper, settings, library),
        admission,
        house,
    )
    imports = Imports(settings, store, registry, house)
    return Dock(
        settings=settings,
        identity=identity,
        chats=chats,
        queue=Queue(registry, dispatcher, admission, house),
        diffs=diffs,
        reading=Reading(settings, store, registry),
        forks=Forks(settings, store, registry, library, imports.has_transcript, backends, house),
        imports=imports,
        library=library,
        publishing=publishing,
        searching=Searching(store, registry),
        runtimes=runtimes,
        feed=feed,
        store=store,
        stopping=stopping,
    )


def _own_folders(settings: Settings, identity: Identity) -> tuple[Authorities, Storage]:
    """What lies in folders of its own beside the database.  Raises SettingError."""
    authorities = Authorities(
        settings.state_dir / AUTHORITY_FOLDER,
        identity.server,
        authenticated=settings.token is not None,
    )
    try:
        authorities.secure()
        return authorities, Storage.of(settings.state_dir)
    except OSError as error:
        place = error.filename or settings.state_dir
        raise SettingError(f"cannot use {place}: {error.strerror}") from error


def _measure(
    backends: Mapping[str, Backend], name: str, prompt: str, files: Sequence[AttachedFile]
) -> None:
    """Raises PromptTooLarge for a message that can never fit its transport."""
    if name in backends:
        backends[name].check_prompt(prompt, files)


async def _after_start(dock: Dock) -> None:
    """What may happen once the server answers: it must not delay the first answer."""
    await trio.to_thread.run_sync(logs.configure, sys.stderr)
    gc.collect()
    gc.freeze()
    await dock.runtimes.catalog(refresh=False)


async def _listen_for_signals(stopping: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            stopping.set()


@contextlib.contextmanager
def _written_address(path: pathlib.Path, address: str) -> Iterator[None]:
    """Tell the command line of this user where the server is, for as long as it is there."""
    scratch = path.with_suffix(".tmp")
    try:
        scratch.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(scratch, flags, 0o600), "w") as file:
            json.dump({"url": address, "pid": os.getpid()}, file)
        scratch.replace(path)
    except OSError as error:
        log.warning("address not written down", error=error.strerror)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
