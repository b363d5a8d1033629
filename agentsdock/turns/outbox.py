"""Drafts of one turn on their way to the store: in order, bounded, none lost to a cancel."""

from collections.abc import Awaitable, Callable, Sequence

import trio

from agentsdock.model.events import Draft

MAX_WAITING_BYTES = 256 * 1024
"""Stream bytes whose events may wait; whoever reads the stream waits beyond that."""

Record = Callable[[Sequence[Draft]], Awaitable[None]]


class Outbox:
    """Filled without waiting, emptied by one task that outlives whoever fills it."""

    def __init__(self) -> None:
        self._drafts: list[Draft] = []
        self._bytes = 0
        self._closed = False
        self._filled = trio.Event()
        self._emptied = trio.Event()

    def put(self, drafts: Sequence[Draft], stream_bytes: int = 0) -> None:
        if drafts:
            self._drafts.extend(drafts)
            self._bytes += stream_bytes
            self._filled.set()

    async def room(self) -> None:
        """Until the store has caught up with the stream.  A cancel here loses nothing."""
        while self._bytes > MAX_WAITING_BYTES and not self._closed:
            await self._emptied.wait()

    def close(self) -> None:
        """What is in goes out; then ``deliver`` returns."""
        self._closed = True
        self._filled.set()
        self._release()

    async def deliver(self, record: Record) -> None:
        while True:
            await self._filled.wait()
            drafts, self._drafts = self._drafts, []
            self._bytes = 0
            if not drafts and self._closed:
                return
            if not self._closed:
                self._filled = trio.Event()
            self._release()
            await record(drafts)

    def _release(self) -> None:
        self._emptied.set()
        self._emptied = trio.Event()
