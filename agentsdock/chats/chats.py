"""The chats as the web room uses them: one method a request."""

from typing import Any

import trio
from attrs import frozen

from agentsdock.chats import pages
from agentsdock.chats.admission import Admission
from agentsdock.chats.chat import Chat
from agentsdock.chats.dispatcher import Dispatcher
from agentsdock.chats.ordering import Ordering
from agentsdock.chats.pressure import available_mem_mb
from agentsdock.chats.registry import Registry
from agentsdock.chats.sessions import Sessions
from agentsdock.chats.stopping import Stopper, receipt
from agentsdock.chats.tasks import hand_over
from agentsdock.config import Settings
from agentsdock.model.errors import Conflict, NotFound
from agentsdock.model.requests import (
    CreateSession,
    Idempotency,
    PatchSession,
    PlaceSession,
    PostTurn,
    ReadPage,
)
from agentsdock.model.sessions import Head
from agentsdock.store.protocol import Store
from agentsdock.turns.clocks import Limit

LARGE_LOG_BYTES = 64 * 1024 * 1024


@frozen
class Chats:
    """Whatever changes something is done in ``nursery``: a client that leaves cuts nothing in
    half.  Every method raises DockError where it refuses."""

    settings: Settings
    store: Store
    registry: Registry
    dispatcher: Dispatcher
    stopper: Stopper
    sessions: Sessions
    admission: Admission
    nursery: trio.Nursery

    def summaries(self) -> bytes:
        """The body of the summary list."""
        rows = [chat.summary() for chat in self.registry.sorted()]
        if not rows:
            return b'{"sessions":[]}'
        # The ends go into the one join: a second copy of a long list costs as much as the first.
        rows[0] = b'{"sessions":[' + rows[0]
        rows[-1] += b"]}"
        return b",".join(rows)

    def details(self) -> list[dict[str, Any]]:
        return [chat.detail() for chat in self.registry.sorted()]

    def count(self) -> int:
        return sum(1 for _ in self.registry)

    def detail(self, session_id: str) -> dict[str, Any]:
        return self.registry.require(session_id).detail()

    def head(self, session_id: str) -> Head:
        return self.registry.require(session_id).head

    async def page(self, session_id: str, request: ReadPage) -> bytes:
        chat = self.registry.require(session_id)
        return await pages.page(self.store, self.settings, chat, request)

    async def create(self, request: CreateSession) -> dict[str, Any]:
        return await hand_over(self.nursery, self.sessions.create, request)

    async def patch(self, session_id: str, request: PatchSession) -> dict[str, Any]:
        return await hand_over(self.nursery, self.sessions.patch, session_id, request)

    async def delete(self, session_id: str) -> dict[str, Any]:
        return await hand_over(self.nursery, self.sessions.delete, session_id)

    async def mark_read(self, session_id: str, seq: int | None) -> dict[str, Any]:
        return await hand_over(self.nursery, self.sessions.mark_read, session_id, seq)

    async def mark_unread(self, session_id: str) -> dict[str, Any]:
        return await hand_over(self.nursery, self.sessions.mark_unread, session_id)

    async def place(self, session_id: str, request: PlaceSession) -> list[dict[str, Any]]:
        return await hand_over(self.nursery, Ordering(self.registry).place, session_id, request)

    async def post_turn(
        self, session_id: str, message: PostTurn, idempotency: Idempotency | None = None
    ) -> bytes:
        return await hand_over(self.nursery, self.admission.post, session_id, message, idempotency)

    async def stop(self, session_id: str) -> dict[str, Any]:
        """The receipt.  A chat that does not exist, or is idle, is stopped as it is."""
        chat = self.registry.get(session_id)
        return receipt(None) if chat is None else await self.stopper.stop(chat)

    async def extend(
        self, session_id: str, run_id: str, seconds: float, clock: str | None
    ) -> dict[str, Any]:
        """Grant a running turn more time; its deadlines as seconds from now."""
        chat = self.registry.require(session_id)
        live = chat.live
        if live is None or live.run.id != run_id:
            run, _ = await self.store.run_events(run_id)
            if run is None or run.session_id != session_id:
                raise NotFound("run not found")
            raise Conflict("this run has ended")
        left = live.runner.extend(seconds, Limit(clock) if clock else None)
        if left is None:
            raise Conflict("no clock of this run is running: it is just starting or ending")
        return {"ok": True, "run_id": run_id, "idle_deadline": left[0], "turn_deadline": left[1]}

    def health(self) -> dict[str, Any]:
        """What the house is doing, for the health answer.  Quick."""
        chats = list(self.registry)
        live = [chat for chat in chats if chat.live is not None]
        active = sorted(chat.id for chat in live)
        waiting = self.store.log_bytes
        return {
            "active": active,
            "active_sessions": active,
            "active_count": len(active),
            "active_runs": [_active_run(chat) for chat in live],
            "queued": {chat.id: len(chat.queue) for chat in chats if chat.queue},
            "update_blocking_queued_count": 0,
            "max_active_agent_runs": self.settings.max_active_runs,
            "available_mem_mb": available_mem_mb(),
            "set_aside": self.registry.set_aside,
            "database_log": {"bytes": waiting, "large": waiting > LARGE_LOG_BYTES},
            "rung": self.dispatcher.rung,
            "drift": self.dispatcher.drift.public(),
        }


def _active_run(chat: Chat) -> dict[str, Any]:
    assert chat.live is not None
    run = chat.live.run
    return {
        "session_id": chat.id,
        "run_id": run.id,
        "backend": run.backend,
        "state": run.state,
        "started_at": run.started_at,
    }
