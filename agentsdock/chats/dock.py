"""The one object that the web room sees."""

import hashlib
import pathlib
import socket
import uuid

import trio
from attrs import frozen

from agentsdock import __version__
from agentsdock.backends.probing import Runtimes
from agentsdock.chats.chats import Chats
from agentsdock.chats.diffs import Diffs
from agentsdock.chats.forks import Forks
from agentsdock.chats.imports import Imports
from agentsdock.chats.library import Library
from agentsdock.chats.publishing import Publishing
from agentsdock.chats.queue import Queue
from agentsdock.chats.reading import Reading
from agentsdock.chats.searching import Searching
from agentsdock.config import Settings
from agentsdock.store.feed import Feed
from agentsdock.store.protocol import Store

MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")


@frozen
class Identity:
    """Who this server is.  ``server`` survives restarts and updates, ``instance`` does not."""

    server: str
    instance: str
    version: str = __version__


@frozen
class Dock:
    settings: Settings
    identity: Identity
    chats: Chats
    queue: Queue
    diffs: Diffs
    reading: Reading
    library: Library
    publishing: Publishing
    forks: Forks
    imports: Imports
    searching: Searching
    runtimes: Runtimes
    feed: Feed
    store: Store
    stopping: trio.Event
    """Set when the server is going down."""


def identify(state_dir: pathlib.Path) -> Identity:
    """Derived from this machine and the state folder: clients pin it."""
    seed = f"{_machine_id()}|{state_dir.resolve()}"
    return Identity(hashlib.sha256(seed.encode()).hexdigest()[:24], uuid.uuid4().hex)


def _machine_id() -> str:
    for name in MACHINE_ID_FILES:
        try:
            text = pathlib.Path(name).read_text().strip()
        except OSError:
            continue
        if text:
            return text
    return socket.gethostname()
