"""The events socket: every event of a chat from a cursor on, once and in order.

A follower is a cursor and a wake-up; what it has not sent lies in the store.  A client that
stops reading therefore costs the group of frames that is being written to it, and no more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import quart.wrappers.base
import trio
from attrs import frozen
from quart import Blueprint, websocket

from agentsdock.logs import get_logger, where
from agentsdock.model.events import INTERNAL_TYPES, Committed
from agentsdock.web import frames
from agentsdock.web.auth import EVENTS_PROTOCOL
from agentsdock.web.connection import Connection, Gone, Slow
from agentsdock.web.parsing import Query

if TYPE_CHECKING:
    from agentsdock.chats.dock import Dock
    from agentsdock.store.feed import Watcher

INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013
CHAT_DELETED = 4404

log = get_logger()


class _NeverRaised(Exception):
    pass


# quart 0.23 raises this out of receive() where 0.22 only cancels the handler.
_ClientDisconnected: type[Exception] = getattr(
    quart.wrappers.base, "ClientDisconnectedError", _NeverRaised
)


@frozen
class Following:
    """What the client asked for.  ``hide_internal`` concerns the backlog; live events are whole."""

    after: int
    hide_internal: bool
    sync: bool

    @classmethod
    def read(cls, query: Query) -> "Following":
        return cls(
            query.integer("after", 0), query.flag("visible", False), query.flag("sync", False)
        )


@frozen
class Close:
    code: int
    reason: str


def last_seq(seq: int) -> str:
    return f"last_seq={seq}"


class Follower:
    """Sends one chat's events over one connection, until there is a reason to close."""

    def __init__(
        self, dock: "Dock", connection: Connection, session_id: str, following: Following
    ) -> None:
        self._dock = dock
        self._connection = connection
        self._session_id = session_id
        self._following = following
        self._waiting = trio.CancelScope()
        self._sent = 0

    async def run(self) -> Close:
        """Raises Gone and Slow."""
        asked, head = self._following.after, self._dock.chats.head(self._session_id).seq
        self._sent = min(asked, head)
        if asked > head:
            log.warning("client is ahead", chat=self._session_id, after=asked, last_seq=head)
        try:
            with self._dock.feed.watch(self._session_id, self._sent) as watch:
                await self._follow(watch, asked, head)
        except trio.EndOfChannel:
            return Close(CHAT_DELETED, "chat deleted")
        return Close(SERVICE_RESTART, last_seq(self._sent))

    def interrupt(self) -> None:
        """End the wait for events; what is being written is finished."""
        self._waiting.cancel()

    async def _follow(self, watch: "Watcher", asked: int, head: int) -> None:
        behind = self._sent < head
        rows = await self._next(watch) if behind else ()
        if rows is None:
            return
        await self._say(_verdict(asked, head, rows))
        if not behind:
            await self._say({"type": "caught_up", "seq": head})
        while rows is not None:
            await self._send(rows, head)
            if behind and self._sent >= head:
                behind = False
                await self._say({"type": "caught_up", "seq": self._sent})
            rows = await self._next(watch)

    async def _next(self, watch: "Watcher") -> Sequence[Committed] | None:
        """The rows that follow, or None once the server is going down."""
        if self._dock.stopping.is_set():
            return None
        with trio.CancelScope() as self._waiting:
            return await watch.next()
        return None

    async def _send(self, rows: Sequence[Committed], head: int) -> None:
        for seq, group in frames.grouped(self._shown(rows, head)):
            await self._connection.send_frames(group, frames.close(TRY_AGAIN_LATER, last_seq(seq)))
        if rows:
            self._sent = rows[-1].seq

    def _shown(self, rows: Sequence[Committed], head: int) -> Iterator[tuple[int, bytes]]:
        for row in rows:
            hidden = self._following.hide_internal and row.type in INTERNAL_TYPES
            if not (hidden and row.seq <= head):
                yield row.seq, row.body

    async def _say(self, control: dict[str, Any]) -> None:
        """A control frame, which only clients get that asked for them."""
        if self._following.sync:
            await self._connection.send_frames(
                frames.text(msgspec.json.encode(control)),
                frames.close(TRY_AGAIN_LATER, last_seq(self._sent)),
            )


def _verdict(asked: int, head: int, rows: Sequence[Committed]) -> dict[str, Any]:
    """Whether what follows joins on to the client's cursor without a gap."""
    first = rows[0].seq if rows else head + 1
    return {"type": "sync", "verdict": "ok" if first == asked + 1 else "gap", "from": first}


async def _end_of(follower: Follower) -> Close | None:
    """How the socket is to be closed; None if it is closing already."""
    try:
        return await follower.run()
    except (Gone, Slow):
        return None
    except Exception as error:
        log.error("events socket failed", error=where(error))
        return Close(INTERNAL_ERROR, "internal error")


async def _read_and_ignore(cancel: Callable[[], None]) -> None:
    """Messages of the client mean nothing, but must be taken for its close to be seen."""
    try:
        while True:
            await websocket.receive()
    except _ClientDisconnected:
        cancel()


async def _interrupt_when(stopping: trio.Event, follower: Follower) -> None:
    await stopping.wait()
    follower.interrupt()


def blueprint(dock: "Dock") -> Blueprint:
    events = Blueprint("events", __name__)

    @events.websocket("/api/sessions/<session_id>/events")
    async def follow(session_id: str) -> None:
        dock.chats.head(session_id)
        following = Following.read(Query(websocket.args))
        offered = websocket.requested_subprotocols
        await websocket.accept(subprotocol=EVENTS_PROTOCOL if EVENTS_PROTOCOL in offered else None)
        connection: Connection = websocket.scope["state"]["connection"]
        follower = Follower(dock, connection, session_id, following)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read_and_ignore, nursery.cancel_scope.cancel)
            nursery.start_soon(_interrupt_when, dock.stopping, follower)
            end = await _end_of(follower)
            if end is not None:
                await websocket.close(end.code, end.reason)
            # The nursery stays open until the client has answered, or its time for that is over.

    return events
