"""What the house asks of its ledger.  A second engine implements this and nothing else.

An append is a unit: its events and its changes are durable together or not at all.  Units of
one chat take effect in the order in which they were submitted.  A unit that fails harms no
other.  Sequence numbers are given inside the transaction, so they have no gaps.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from agentsdock.model.events import Committed, Encoded
from agentsdock.model.sessions import Head, Session
from agentsdock.model.turns import QueuedTurn, Run


class StoreError(Exception):
    """The ledger could not do it; nothing of the unit is durable."""


class StoreFull(StoreError):
    """No space or quota left."""


class StoreDamaged(StoreError):
    """The database is not readable; the message says which file was set aside."""


class SessionGone(StoreError):
    """The chat of this unit was deleted."""


class RunClosed(StoreError):
    """The run has its terminal event already, or another claim took it (fencing)."""


class RunExists(StoreError):
    """The chat has an open run, or this run id was used before."""


@frozen
class PutSession:
    session: Session


@frozen
class DropSession:
    """Remove the chat with its events, queue, runs and answers."""

    session_id: str


@frozen
class PutQueued:
    turn: QueuedTurn


@frozen
class DropQueued:
    queued_id: str


@frozen
class KeepAnswer:
    """The first answer to an idempotent request, kept until ``expires_at`` (epoch seconds)."""

    scope: str
    key: str
    request_hash: str
    status: int
    body: bytes
    expires_at: float


Change = PutSession | DropSession | PutQueued | DropQueued | KeepAnswer


@frozen
class Loaded:
    """Everything that the house keeps in memory, as it stood at the last commit."""

    sessions: tuple[Session, ...]
    heads: dict[str, Head]
    queue: tuple[QueuedTurn, ...]
    """By chat, then position."""
    open_runs: tuple[Run, ...]


OnCommit = Callable[[str, Sequence[Committed], Head], None]
"""Called on the Trio thread, in commit order, before the unit's caller resumes."""


class Store(Protocol):
    on_commit: OnCommit

    async def load(self) -> Loaded: ...

    async def append(
        self, session_id: str, events: Sequence[Encoded] = (), changes: Sequence[Change] = ()
    ) -> list[Committed]:
        """Commit a unit.  The work goes on if the caller is cancelled."""
        ...

    async def claim(
        self, run: Run, events: Sequence[Encoded], changes: Sequence[Change] = ()
    ) -> list[Committed]:
        """Open a run together with its first events.  At most one run of a chat is open."""
        ...

    async def renew(self, run: Run) -> None:
        """Store an open run's newer facts (state, pids).  Raises RunClosed."""
        ...

    async def finish(
        self, run: Run, events: Sequence[Encoded], changes: Sequence[Change] = ()
    ) -> list[Committed]:
        """Close a run together with its terminal event.  Raises RunClosed the second time."""
        ...

    async def read_from(
        self, session_id: str, after: int, *, max_bytes: int = 256 * 1024, max_rows: int = 1000
    ) -> list[Committed]:
        """The next events after a sequence number: at least one if there is any."""
        ...

    async def read_page(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        tail: bool = True,
        without: frozenset[str] = frozenset(),
    ) -> tuple[list[Committed], int]:
        """A page in ascending order, and how many events match ``after``/``before``/``without``.

        ``tail`` takes the newest ``limit`` of the window, else the oldest.
        """
        ...

    async def answer(self, scope: str, key: str) -> KeepAnswer | None:
        """An unexpired kept answer."""
        ...

    async def run_events(self, run_id: str) -> tuple[Run | None, list[Committed]]:
        """A run (open or closed) and its events, for replay and reports."""
        ...

    async def aclose(self) -> None:
        """Commit what was submitted, then close."""
        ...
