"""The ledger on SQLite: one writer with group commit, one reader that it never waits for.

The writer is one task.  It takes what is waiting, commits it in a worker thread, and only then
publishes and wakes the callers, so the size of a group follows the load by itself.
"""

import math
import pathlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

import apsw
import trio
from attrs import define, evolve, field

from agentsdock.model.events import TERMINAL_TYPES, Committed, Encoded
from agentsdock.model.files import ListedFile
from agentsdock.model.sessions import Head
from agentsdock.model.turns import Run
from agentsdock.store import ledger, loading, outline, queries, search, shelf
from agentsdock.store.counting import Counts
from agentsdock.store.engine import (
    DAMAGE,
    WAL_BYTES,
    log_bytes,
    translate,
    truncate_log,
)
from agentsdock.store.files import Opened, open_files
from agentsdock.store.indexing import Indexer
from agentsdock.store.ledger import Claim, Finish, Renew, Unit
from agentsdock.store.protocol import (
    Change,
    DropSession,
    Found,
    KeepAnswer,
    Loaded,
    OnCommit,
    PutDiff,
    Span,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
)

T = TypeVar("T")

GROUP_ROWS = 2000
GROUP_BYTES = 8 * 1024 * 1024
UNCOMMITTED_BYTES = 64 * 1024 * 1024
"""What may wait for a stalled disk before units are refused.  Callers wait for their commit, so
only those that were cancelled can leave more than one unit each."""
QUIET_SECONDS = 0.05
"""How long nothing must have been written before the writer cleans up."""
CLOSE_SECONDS = 30.0
PROGRESS_STEPS = 10_000
"""Virtual machine steps (a fraction of a millisecond) between looks whether a read is wanted."""


class RunBlocking(Protocol):
    """How blocking work is carried out: :func:`run_in_thread` or :func:`run_inline`."""

    async def __call__(
        self,
        work: Callable[[], T],
        /,
        *,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T: ...


async def run_in_thread(
    work: Callable[[], T],
    /,
    *,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> T:
    return await trio.to_thread.run_sync(work, abandon_on_cancel=abandon_on_cancel, limiter=limiter)


async def run_inline(
    work: Callable[[], T],
    /,
    *,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> T:
    """Block the event loop: for tests under a mock clock, which does not wait for threads."""
    await trio.lowlevel.checkpoint()
    return work()


@define(eq=False)
class _Waiting:
    """A unit on its way to disk."""

    unit: Unit
    size: int
    settled: trio.Event = field(factory=trio.Event)
    outcome: ledger.Outcome | None = None


def _ignore(session_id: str, committed: Sequence[Committed], head: Head) -> None:
    pass


class SqliteStore:
    """See :class:`agentsdock.store.protocol.Store`; made by :func:`open_store`."""

    def __init__(
        self, opened: Opened, *, clock: Callable[[], float], run_blocking: RunBlocking
    ) -> None:
        self.on_commit: OnCommit = _ignore
        self.set_aside = opened.set_aside
        self._opened = opened
        self._clock = clock
        self._run_blocking = run_blocking
        self._writing = trio.CapacityLimiter(1)
        self._reading = trio.CapacityLimiter(1)
        self._searching = trio.CapacityLimiter(1)
        self._searcher: apsw.Connection | None = None
        self._waiting: deque[_Waiting] = deque()
        self._uncommitted = 0
        self._arrival = trio.Event()
        self._closing = False
        self._untidy = True
        self._indexer = Indexer()
        self._counts = Counts()
        self._in_hand: list[_Waiting] = []
        self._released = False
        self._stopped = trio.Event()
        self._lifetime = trio.CancelScope(shield=True)

    # -- the writer's side

    async def append(
        self, session_id: str, events: Sequence[Encoded] = (), changes: Sequence[Change] = ()
    ) -> list[Committed]:
        return await self._commit(Unit(session_id, tuple(events), tuple(changes)))

    async def claim(
        self, run: Run, events: Sequence[Encoded], changes: Sequence[Change] = ()
    ) -> list[Committed]:
        return await self._commit(Unit(run.session_id, tuple(events), tuple(changes), Claim(run)))

    async def renew(self, run: Run) -> None:
        await self._commit(Unit(run.session_id, (), (), Renew(run)))

    async def finish(
        self, run: Run, events: Sequence[Encoded], changes: Sequence[Change] = ()
    ) -> list[Committed]:
        terminal = [event for event in events if event.type in TERMINAL_TYPES]
        if [event.run_id for event in terminal] != [run.id]:
            raise ValueError(f"{run.id} must be finished with exactly one terminal event")
        return await self._commit(Unit(run.session_id, tuple(events), tuple(changes), Finish(run)))

    @property
    def log_bytes(self) -> int:
        return log_bytes(self._opened.database)

    async def load(self) -> Loaded:
        return await self._in_writer(loading.load, abandon=False)

    async def aclose(self) -> None:
        self._closing = True
        self._arrival.set()
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._stopped.wait()
            if not self._released:
                self._released = True
                # The limiters put this behind the reads that are under way.
                await self._run_blocking(self._close_searcher, limiter=self._searching)
                await self._run_blocking(self._opened.close, limiter=self._reading)
        # A writer that is stuck in the disk is left to the end of the process.
        self._lifetime.cancel()

    async def _commit(self, unit: Unit) -> list[Committed]:
        if any(isinstance(change, DropSession) for change in unit.changes) and (
            unit.events or unit.step
        ):
            raise ValueError("a unit that drops a chat holds no events and no step of a run")
        waiting = self._accept(unit)
        await waiting.settled.wait()
        outcome = waiting.outcome
        if isinstance(outcome, ledger.Done):
            return outcome.committed
        assert outcome is not None
        raise outcome

    def _accept(self, unit: Unit) -> _Waiting:
        """Put a unit in line.  There is no checkpoint before, so the order is the callers'."""
        if self._closing:
            raise StoreClosed("the store takes no more work")
        waiting = _Waiting(unit, _size(unit))
        if self._uncommitted and self._uncommitted + waiting.size > UNCOMMITTED_BYTES:
            raise StoreBusy("too much is waiting to be written; try again in a moment")
        self._uncommitted += waiting.size
        self._waiting.append(waiting)
        self._arrival.set()
        return waiting

    async def write(self) -> None:
        """The writer task.  It outlives a cancelled nursery until :meth:`aclose`."""
        try:
            with self._lifetime:
                while self._waiting or not self._closing:
                    if self._waiting:
                        await self._commit_group()
                    else:
                        await self._rest()
        finally:
            self._closing = True
            for waiting in (*self._in_hand, *self._waiting):
                waiting.outcome = StoreClosed("the store ended before it knew of a commit")
                waiting.settled.set()
            self._stopped.set()

    async def _commit_group(self) -> None:
        self._in_hand = self._take()
        units = [waiting.unit for waiting in self._in_hand]
        outcomes = await self._in_writer(
            partial(ledger.commit, units=units, now=self._clock()), abandon=True
        )
        for waiting, outcome in zip(self._in_hand, outcomes, strict=True):
            self._settle(waiting, outcome)
        self._in_hand = []
        self._untidy = True
        size = sum(
            sum(len(event.body) + search.ROW_BYTES for event in unit.events) for unit in units
        )
        self._indexer.owed += size
        if self._indexer.owed > search.FRESH_BYTES // 2:
            # There is never a quiet moment: searches must not have to look through ever more.
            with suppress(StoreError):
                await self._in_writer(partial(self._indexer.keep_up, size=size), abandon=True)

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        rows = size = 0
        while self._waiting and rows < GROUP_ROWS and size < GROUP_BYTES:
            waiting = self._waiting.popleft()
            group.append(waiting)
            rows += max(1, len(waiting.unit.events))
            size += waiting.size
        return group

    def _settle(self, waiting: _Waiting, outcome: ledger.Outcome) -> None:
        self._uncommitted -= waiting.size
        waiting.outcome = outcome
        if isinstance(outcome, ledger.Done) and outcome.committed:
            self.on_commit(waiting.unit.session_id, outcome.committed, outcome.head)
        waiting.settled.set()

    async def _rest(self) -> None:
        """Wait for work; clean up in small pieces once it has been quiet."""
        self._arrival = trio.Event()
        with trio.move_on_after(QUIET_SECONDS if self._untidy else math.inf):
            await self._arrival.wait()
            return
        try:
            while self._untidy and not self._arrival.is_set():
                more = await self._in_writer(self._tidy, abandon=True)
                self._untidy = more or self._arrival.is_set()
        except StoreError:
            self._untidy = False

    def _tidy(self, db: apsw.Connection) -> bool:
        """A small piece of cleaning up or indexing; whether there may be more to do."""
        try:
            if ledger.tidy(db, self._clock()):
                return True
        except DAMAGE:
            # A deleted chat's rows cannot leave a damaged index.
            self._indexer.damaged = True
        if self._indexer.step(db):
            return True
        if self.log_bytes > WAL_BYTES:
            truncate_log(db)
        return False

    async def _in_writer(self, work: Callable[[apsw.Connection], T], *, abandon: bool) -> T:
        db = self._opened.writer

        def guarded() -> T:
            try:
                return work(db)
            except apsw.Error as error:
                raise translate(error, db) from error

        # The writer task is cancelled only when a close has run out of time.
        return await self._run_blocking(guarded, limiter=self._writing, abandon_on_cancel=abandon)

    # -- the reader's side

    async def read_from(
        self, session_id: str, after: int, *, max_bytes: int = 256 * 1024, max_rows: int = 1000
    ) -> list[Committed]:
        return await self._read(
            lambda db: queries.read_from(db, session_id, after, max_bytes, max_rows)
        )

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
        return await self._read(
            lambda db: queries.read_page(
                db,
                session_id,
                after=after,
                before=before,
                limit=limit,
                tail=tail,
                without=without,
                max_bytes=max_bytes,
                counts=self._counts,
            )
        )

    async def outline(
        self, session_id: str, after: int, *, max_bytes: int = 1024 * 1024, max_rows: int = 1000
    ) -> tuple[list[Committed], int]:
        return await self._read(
            lambda db: outline.outline(db, session_id, after, max_bytes, max_rows)
        )

    async def trace_types(
        self, session_id: str, after: int, upto: int, *, max_rows: int = 10_000
    ) -> list[tuple[int, str]]:
        return await self._read(
            lambda db: outline.trace_types(db, session_id, after, upto, max_rows)
        )

    async def spans(
        self, session_id: str, wanted: Sequence[Span], *, max_bytes: int = 16 * 1024 * 1024
    ) -> list[list[Committed]]:
        return await self._read(lambda db: outline.spans(db, session_id, wanted, max_bytes))

    async def last_texts(
        self, session_id: str, wanted: Sequence[tuple[int, int]]
    ) -> list[Committed | None]:
        return await self._read(lambda db: outline.last_texts(db, session_id, wanted))

    async def trace(
        self,
        session_id: str,
        run_id: str,
        window: tuple[int, int],
        *,
        limit: int,
        max_bytes: int = 16 * 1024 * 1024,
    ) -> tuple[list[Committed], bool]:
        return await self._read(
            lambda db: outline.trace(db, session_id, run_id, window, limit, max_bytes)
        )

    async def subagents(
        self, session_id: str, after: int, *, max_bytes: int = 1024 * 1024, max_rows: int = 1000
    ) -> list[Committed]:
        return await self._read(
            lambda db: outline.subagents(db, session_id, after, max_bytes, max_rows)
        )

    async def files(
        self, session_id: str, *, limit: int, offset: int = 0, content_prefix: str = ""
    ) -> tuple[list[ListedFile], int]:
        return await self._read(
            lambda db: shelf.files(db, session_id, limit, offset, content_prefix)
        )

    async def file(self, session_id: str, file_id: str) -> ListedFile | None:
        return await self._read(lambda db: shelf.file(db, session_id, file_id))

    async def linked_file(self, session_id: str, target: str) -> ListedFile | None:
        return await self._read(lambda db: shelf.linked_file(db, session_id, target))

    async def owner_of(self, file_id: str) -> str | None:
        return await self._read(lambda db: shelf.owner_of(db, file_id))

    async def known_files(self) -> frozenset[str]:
        return await self._read(shelf.known_files)

    async def search_chat(self, session_id: str, query: str, limit: int) -> Found:
        return await self._search(lambda db: search.search_chat(db, session_id, query, limit))

    async def search_all(self, query: str, among: frozenset[str], limit: int) -> Found:
        return await self._search(lambda db: search.search_all(db, query, among, limit))

    async def _search(self, query: Callable[[apsw.Connection], Found]) -> Found:
        """Ask the index; one that is damaged is built anew, and meanwhile little is found."""
        try:
            found = await self._ask(query, self._search_connection, self._searching)
        except StoreDamaged:
            if not self._indexer.damaged:
                # Once only: each arrival puts off the quiet moment in which it is built.
                self._indexer.damaged = self._untidy = True
                self._arrival.set()
            return Found([], complete=False)
        return evolve(found, complete=found.complete and not self._indexer.damaged)

    async def answer(self, scope: str, key: str) -> KeepAnswer | None:
        now = self._clock()
        return await self._read(lambda db: queries.answer(db, scope, key, now))

    async def run_events(
        self,
        run_id: str,
        *,
        after: int = 0,
        max_bytes: int = 1024 * 1024,
        max_rows: int = 1000,
    ) -> tuple[Run | None, list[Committed]]:
        return await self._read(
            lambda db: queries.run_events(db, run_id, after, max_bytes, max_rows)
        )

    async def read_diff(self, session_id: str, run_id: str) -> bytes | None:
        return await self._read(lambda db: queries.read_diff(db, session_id, run_id))

    async def _read(self, query: Callable[[apsw.Connection], T]) -> T:
        return await self._ask(query, lambda: self._opened.reader, self._reading)

    def _search_connection(self) -> apsw.Connection:
        """Of its own: what a search takes long for holds up no other read."""
        if self._searcher is None:
            self._searcher = self._opened.another_reader()
        return self._searcher

    def _close_searcher(self) -> None:
        if self._searcher is not None:
            self._searcher.close()

    async def _ask(
        self,
        query: Callable[[apsw.Connection], T],
        connection: Callable[[], apsw.Connection],
        limiter: trio.CapacityLimiter,
    ) -> T:
        """Run a query in a reader's thread; a cancelled one is broken off in the engine."""
        abandoned = False

        def work() -> T:
            if self._released:
                raise StoreClosed("the store is closed")
            db = connection()
            # Asked by the engine itself, so it cannot hit the query that comes next.
            db.set_progress_handler(lambda: abandoned, PROGRESS_STEPS)
            try:
                return query(db)
            except apsw.Error as error:
                raise translate(error, db) from error

        try:
            return await self._run_blocking(work, limiter=limiter, abandon_on_cancel=True)
        except trio.Cancelled:
            abandoned = True
            raise


def _size(unit: Unit) -> int:
    """Bytes that count as uncommitted; a small sum per row stands for all but the body."""
    patches = sum(len(change.patch) for change in unit.changes if isinstance(change, PutDiff))
    return sum(len(event.body) + 200 for event in unit.events) + patches + 200


@asynccontextmanager
async def open_store(
    folder: pathlib.Path,
    *,
    clock: Callable[[], float] = time.time,
    run_blocking: RunBlocking = run_in_thread,
) -> AsyncIterator[SqliteStore]:
    """Open the database in the server's own folder, made if absent and closed to others.

    On the way out everything that was accepted is committed (for at most ``CLOSE_SECONDS``)
    and the files are closed.  Raises StoreInUse, StoreTooNew or StoreError.
    """
    opened = await run_blocking(partial(open_files, folder))
    store = SqliteStore(opened, clock=clock, run_blocking=run_blocking)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write)
        try:
            yield store
        finally:
            await store.aclose()
