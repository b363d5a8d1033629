"""What the house asks of its ledger.  A second engine implements this and nothing else.

An append is a unit: its events and its changes are durable together or not at all.  Units of
one chat take effect in the order in which they were submitted.  A unit that fails harms no
other.  Sequence numbers are given inside the transaction, so they have no gaps.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from agentsdock.model.events import Committed, Encoded
from agentsdock.model.files import FileRecord, ListedFile
from agentsdock.model.sessions import Head, Session
from agentsdock.model.turns import QueuedTurn, Run


class StoreError(Exception):
    """The ledger could not do it; nothing of the unit is durable."""


class StoreFull(StoreError):
    """No space or quota left.  The next unit may succeed: nothing has to be restarted."""


class StoreBusy(StoreError):
    """Another program holds the database, or too much waits; trying again may help."""


class StoreDamaged(StoreError):
    """The engine found the database unreadable while it was in use."""


class StoreInUse(StoreError):
    """Another server has this folder open; the message says which process."""


class StoreTooNew(StoreError):
    """A newer release wrote this database; it was left untouched."""


class StoreClosed(StoreError):
    """The store is closing or closed and takes no more work."""


class SessionGone(StoreError):
    """The chat of this unit was deleted, or never existed."""


class RunClosed(StoreError):
    """The run has its terminal event already, or another claim took it (fencing)."""


class RunExists(StoreError):
    """The chat has an open run, or this run id was used before."""


class AnswerExists(StoreError):
    """An answer to another request is kept under this scope and key, and has not expired."""


@frozen
class PutSession:
    """Create or replace the chat's stored fields.  A deleted chat is not brought back."""

    session: Session


@frozen
class DropSession:
    """Remove the chat with its events, queue, runs and answers.

    It is invisible at once and for good; its rows leave the file in small steps later.  The
    unit must hold no events.
    """

    session_id: str


@frozen
class PutQueued:
    """Create or replace a waiting turn."""

    turn: QueuedTurn


@frozen
class DropQueued:
    """Remove a waiting turn; one that is not there is no error."""

    queued_id: str


@frozen
class KeepAnswer:
    """The answer to an idempotent request, kept until ``expires_at`` (epoch seconds).

    A newer one for the same request (by its hash) replaces it.
    """

    scope: str
    key: str
    request_hash: str
    status: int
    body: bytes
    expires_at: float


@frozen
class PutDiff:
    """Keep what a run changed, for the chat of the unit.  ``patch`` is zlib-compressed."""

    run_id: str
    patch: bytes


@frozen
class PutFile:
    """Keep a file's record.  ``event_index`` is that of its event among those of the unit."""

    record: FileRecord
    event_index: int


Change = PutSession | DropSession | PutQueued | DropQueued | KeepAnswer | PutDiff | PutFile


@frozen
class SetAside:
    """A stored row that could not be read: kept in a table of its own, out of the way."""

    kind: str
    """``session``, ``queued`` or ``run``."""
    key: str
    error: str


@frozen
class Loaded:
    """Everything that the house keeps in memory, as it stood at the last commit."""

    sessions: tuple[Session, ...]
    heads: dict[str, Head]
    queue: tuple[QueuedTurn, ...]
    """By chat, then position."""
    open_runs: tuple[Run, ...]
    set_aside: tuple[SetAside, ...] = ()
    """What this load could not read.  Queue rows and runs of such a chat are left out too."""


@frozen
class Hit:
    """A chat's event that holds the words, and how many of the chat's do where that was asked."""

    session_id: str
    event: Committed
    count: int


@frozen
class Found:
    """Hits of a search; ``complete`` unless so much has yet to be indexed that some may lack."""

    hits: list[Hit]
    complete: bool


@frozen
class Span:
    """A stretch of a chat, both ends included; ``spoken`` wants what was said in it, too."""

    first: int
    last: int
    spoken: bool = False


OnCommit = Callable[[str, Sequence[Committed], Head], None]
"""Called with a chat's new events on the Trio thread, in commit order, before the unit's
caller resumes.  It must not raise."""


class Store(Protocol):
    on_commit: OnCommit
    set_aside: pathlib.Path | None
    """Where the database went that was found damaged at the start; None if it was sound."""

    @property
    def log_bytes(self) -> int:
        """What is committed and still lies outside the database itself."""
        ...

    async def load(self) -> Loaded: ...

    async def append(
        self, session_id: str, events: Sequence[Encoded] = (), changes: Sequence[Change] = ()
    ) -> list[Committed]:
        """Commit a unit: the changes in the order given, then the events.

        The call puts the unit in line before anything else can run, and returns when it is
        durable and published; the work goes on if the caller is cancelled.  Raises StoreBusy
        when too much waits already, and the other errors of this module.
        """
        ...

    async def claim(
        self, run: Run, events: Sequence[Encoded], changes: Sequence[Change] = ()
    ) -> list[Committed]:
        """Open a run together with its first events.  At most one run of a chat is open.

        Raises RunExists.
        """
        ...

    async def renew(self, run: Run) -> None:
        """Store an open run's newer facts (state, pids).  Raises RunClosed.

        A run with a higher fence takes over from the stored owner, who is refused from then
        on; with the same fence only the same owner may write.
        """
        ...

    async def finish(
        self, run: Run, events: Sequence[Encoded], changes: Sequence[Change] = ()
    ) -> list[Committed]:
        """Close a run together with its one terminal event, fenced as ``renew``.

        Raises RunClosed the second time.
        """
        ...

    async def read_from(
        self, session_id: str, after: int, *, max_bytes: int = 256 * 1024, max_rows: int = 1000
    ) -> list[Committed]:
        """The next events after a sequence number: at least one if there is any.

        Raises SessionGone.
        """
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
        max_bytes: int = 16 * 1024 * 1024,
    ) -> tuple[list[Committed], int]:
        """A page in ascending order, and how many events match ``after``/``before``/``without``.

        ``tail`` takes the newest ``limit`` of the window, else the oldest.  A page that would
        exceed ``max_bytes`` is shorter than ``limit``, but never empty for that reason.
        Raises SessionGone.
        """
        ...

    async def outline(
        self, session_id: str, after: int, *, max_bytes: int = 1024 * 1024, max_rows: int = 1000
    ) -> tuple[list[Committed], int]:
        """The chat's next events that are no ``INNER_TYPES``, and the sequence number up to
        which these are all.  Raises SessionGone.
        """
        ...

    async def trace_types(
        self, session_id: str, after: int, upto: int, *, max_rows: int = 10_000
    ) -> list[tuple[int, str]]:
        """(seq, type) of the chat's next ``TRACE_TYPES``, ``upto`` included.

        Raises SessionGone.
        """
        ...

    async def spans(
        self, session_id: str, wanted: Sequence[Span], *, max_bytes: int = 16 * 1024 * 1024
    ) -> list[list[Committed]]:
        """Of each span: the first events that are no ``INNER_TYPES``, the newest events, the
        newest of ``TRACE_TYPES``, and where wanted the newest texts; a bounded number of each.

        Fewer spans than wanted, the first ones, where all would exceed ``max_bytes``; at least
        one.  Raises SessionGone.
        """
        ...

    async def last_texts(
        self, session_id: str, wanted: Sequence[tuple[int, int]]
    ) -> list[Committed | None]:
        """Of each (first, last) sequence number the newest ``assistant_text``.

        Raises SessionGone.
        """
        ...

    async def trace(
        self,
        session_id: str,
        run_id: str,
        window: tuple[int, int],
        *,
        limit: int,
        max_bytes: int = 16 * 1024 * 1024,
    ) -> tuple[list[Committed], bool]:
        """A run's events of ``TRACE_TYPES`` from one sequence number to another, both
        included, and whether more of them follow.  Raises SessionGone.
        """
        ...

    async def subagents(
        self, session_id: str, after: int, *, max_bytes: int = 1024 * 1024, max_rows: int = 1000
    ) -> list[Committed]:
        """The chat's next ``subagent_state`` events.  Raises SessionGone."""
        ...

    async def files(
        self, session_id: str, *, limit: int, offset: int = 0, content_prefix: str = ""
    ) -> tuple[list[ListedFile], int]:
        """A chat's files whose type begins so, newest first, and how many there are."""
        ...

    async def file(self, session_id: str, file_id: str) -> ListedFile | None: ...

    async def linked_file(self, session_id: str, target: str) -> ListedFile | None:
        """The chat's newest file of this id, name, title, source path or stored path."""
        ...

    async def owner_of(self, file_id: str) -> str | None:
        """The id of the chat that has the file."""
        ...

    async def known_files(self) -> frozenset[str]:
        """The ids of all chats' files."""
        ...

    async def search_chat(self, session_id: str, query: str, limit: int) -> Found:
        """The newest events of a chat that hold all words of the query.

        A word is found by its beginning, quoted text as it is.  Raises SessionGone.
        """
        ...

    async def search_all(self, query: str, among: frozenset[str], limit: int) -> Found:
        """The newest hit of each of these chats, latest first."""
        ...

    async def answer(self, scope: str, key: str) -> KeepAnswer | None:
        """An unexpired kept answer."""
        ...

    async def run_events(
        self,
        run_id: str,
        *,
        after: int = 0,
        max_bytes: int = 1024 * 1024,
        max_rows: int = 1000,
    ) -> tuple[Run | None, list[Committed]]:
        """A run (open or closed) and its next events after a sequence number.

        The last page is the empty one.  Long runs are read in many pages, as in read_from.
        """
        ...

    async def read_diff(self, session_id: str, run_id: str) -> bytes | None:
        """The kept (compressed) patch of a run, if there is one.  Raises SessionGone."""
        ...

    async def aclose(self) -> None:
        """Commit what was submitted, then close.  Bounded in time."""
        ...
