"""Who follows a chat live.  A watcher is a cursor and a wake-up, never a queue of payloads.

Watchers of a chat share the newest committed groups, up to ``TAIL_BYTES`` and only while
somebody watches.  Who is behind that reads pages from the store, so a slow client costs
nothing, and what each one gets is gap-free, in order, and once.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio
from attrs import define, field

from agentsdock.model.events import Committed
from agentsdock.model.sessions import Head
from agentsdock.store.protocol import SessionGone, Store

TAIL_BYTES = 1024 * 1024
PAGE_BYTES = 256 * 1024


@define(eq=False)
class _Channel:
    """One watched chat."""

    tail: deque[Sequence[Committed]] = field(factory=deque)
    """Gap-free groups, the newest last."""
    size: int = 0
    last: int = 0
    """The newest sequence number that was published here."""
    dropped: bool = False
    watchers: int = 0
    lot: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    def put(self, committed: Sequence[Committed]) -> None:
        self.tail.append(committed)
        self.size += _bytes(committed)
        self.last = committed[-1].seq
        while self.size > TAIL_BYTES:
            self.size -= _bytes(self.tail.popleft())

    def after(self, cursor: int) -> list[Committed]:
        """About a page of what follows the cursor, nothing if the tail begins later."""
        groups: deque[Sequence[Committed]] = deque()
        for group in reversed(self.tail):
            if group[-1].seq <= cursor:
                break
            groups.appendleft(group)
        if not groups or groups[0][0].seq > cursor + 1:
            return []
        page: list[Committed] = []
        size = 0
        for group in groups:
            page += group[max(0, cursor + 1 - group[0].seq) :]
            size += _bytes(group)
            if size >= PAGE_BYTES:
                break
        return page


def _bytes(committed: Sequence[Committed]) -> int:
    return sum(len(event.body) for event in committed)


class Watcher:
    """One follower.  ``cursor`` is the sequence number of the last event handed out."""

    def __init__(self, store: Store, session_id: str, channel: _Channel, after: int) -> None:
        self.cursor = after
        self._store = store
        self._session_id = session_id
        self._channel = channel
        self._joined = False
        """Whether all that follows the cursor was or will be published to the channel."""

    async def next(self) -> Sequence[Committed]:
        """The next events, at least one; waits until there are any.

        Cancelled, it has taken nothing.  Raises trio.EndOfChannel when the chat is gone, and
        StoreError.
        """
        await trio.lowlevel.checkpoint()
        channel = self._channel
        while True:
            page: Sequence[Committed] = channel.after(self.cursor)
            if not page and not (self._joined and channel.last <= self.cursor):
                page = await self._read()
            if page:
                self.cursor = page[-1].seq
                return page
            if channel.dropped:
                raise trio.EndOfChannel
            if channel.last <= self.cursor:
                await channel.lot.park()

    async def _read(self) -> Sequence[Committed]:
        try:
            page = await self._store.read_from(self._session_id, self.cursor, max_bytes=PAGE_BYTES)
        except SessionGone:
            raise trio.EndOfChannel from None
        self._joined = self._joined or not page
        return page


class Feed:
    """Brings committed events to the watchers of their chat."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._channels: dict[str, _Channel] = {}

    def publish(self, session_id: str, committed: Sequence[Committed], head: Head) -> None:
        """Made to be the store's ``on_commit``."""
        channel = self._channels.get(session_id)
        if channel is not None and committed:
            channel.put(committed)
            channel.lot.unpark_all()

    @contextmanager
    def watch(self, session_id: str, after: int) -> Iterator[Watcher]:
        """Follow a chat from the event behind ``after``.

        A cursor ahead of the chat hears nothing until the chat has caught up with it.
        """
        channel = self._channels.setdefault(session_id, _Channel())
        channel.watchers += 1
        try:
            yield Watcher(self._store, session_id, channel, after)
        finally:
            channel.watchers -= 1
            if not channel.watchers and self._channels.get(session_id) is channel:
                del self._channels[session_id]

    def drop(self, session_id: str) -> None:
        """End the watchers of a deleted chat, each after what it can still get."""
        channel = self._channels.pop(session_id, None)
        if channel is not None:
            channel.dropped = True
            channel.lot.unpark_all()
